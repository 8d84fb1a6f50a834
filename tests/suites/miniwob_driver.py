"""Runs a coroutine with MiniWoB++ pages of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from holotron.actions.action import Click, Hover
from holotron.env.browser.chromium import find_chromium

pytest.importorskip("miniwob")
pytest.importorskip("playwright")

from holotron.suites.miniwob.environment import SPACE, MiniWoBConfig
from holotron.suites.miniwob.pool import MiniWoBPool, miniwob_pool

T = TypeVar("T")
needs_chromium = pytest.mark.skipif(find_chromium()[0] is None, reason="no Chromium on this machine")


def with_pages(work: Callable[[MiniWoBPool], Awaitable[T]], **config: Any) -> T:
    async def run() -> T:
        async with miniwob_pool(MiniWoBConfig(**config)) as pool:
            return await work(pool)

    return asyncio.run(run())


def click(x: float, y: float) -> Click:
    """A click at a pixel, as an action."""
    left, top = SPACE.to_relative(x, y)
    return Click(x=left, y=top)


def hover(x: float, y: float) -> Hover:
    left, top = SPACE.to_relative(x, y)
    return Hover(x=left, y=top)
