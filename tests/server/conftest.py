"""One server for most tests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from holotron.agent.policy_format import BareJsonFormat, save_format

from .hostile import CHAT, HELLO, PATIENCE
from .live import Live, serving, write_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    folder = write_checkpoint(tmp_path_factory.mktemp("tiny"))
    save_format(BareJsonFormat(size=(640, 480)), folder)
    return folder


@pytest.fixture(scope="session")
def live(checkpoint) -> Live:
    with serving(checkpoint) as server:
        yield server


@pytest.fixture
def http(live):
    with live.client() as client:
        yield client


@pytest.fixture(scope="module")
def unharmed(live: Live) -> Iterator[None]:
    """After all of this the server answers, nothing is under way, and sessions have not piled up."""
    yield
    with live.client() as client:
        assert client.post(CHAT, json=HELLO).status_code == 200
        assert client.get("/health?deep=true").status_code == 200
    assert live.state.admission.total == 0
    deadline = time.monotonic() + PATIENCE
    while live.state.client.stats.values["running"]:  # the figures come once a second
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert live.state.client.stats.values["sessions"] <= live.state.settings.kept_most
    assert live.state.client.restarts == 0
