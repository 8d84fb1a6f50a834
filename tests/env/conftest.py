from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.env.driver import World
from tests.env.site import Site


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    pytest.importorskip("playwright")
    world = World()
    yield world
    world.close()


@pytest.fixture
def good() -> Iterator[Site]:
    """The site an agent may visit."""
    with Site() as site:
        yield site


@pytest.fixture
def evil() -> Iterator[Site]:
    """The site that must never hear of it."""
    with Site({"/": "<title>evil</title>"}) as site:
        yield site
