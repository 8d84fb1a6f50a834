"""One server for most tests."""

from __future__ import annotations

import pytest

from .live import Live, serving, write_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def live(checkpoint) -> Live:
    with serving(checkpoint) as server:
        yield server


@pytest.fixture
def http(live):
    with live.client() as client:
        yield client
