"""Runs a coroutine with MiniWoB++ pages of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from holotron.env.browser.chromium import find_chromium

pytest.importorskip("miniwob")
pytest.importorskip("playwright")

from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.env import MiniWoBEnv
from holotron.suites.miniwob.pages import MiniWoB

T = TypeVar("T")
needs_chromium = pytest.mark.skipif(find_chromium()[0] is None, reason="no Chromium on this machine")


def with_pages(work: Callable[[MiniWoB], Awaitable[T]], **config: Any) -> T:
    async def run() -> T:
        async with MiniWoB(MiniWoBConfig(**config)) as miniwob:
            return await work(miniwob)

    return asyncio.run(run())


def with_env(work: Callable[[MiniWoBEnv], Awaitable[T]], **config: Any) -> T:
    return with_pages(lambda miniwob: work(miniwob.envs[0]), **config)
