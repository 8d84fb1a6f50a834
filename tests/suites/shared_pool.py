"""A browser with its pages for many tests, because starting it is what takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class SharedPool:
    """An open pool of pages, and the event loop it lives in. A page is as the test before left it."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._runner = asyncio.Runner()
        self._runner.run(pool.__aenter__())

    def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async def with_pool() -> T:
            return await work(self._pool)

        return self._runner.run(with_pool())

    def close(self) -> None:
        self._runner.run(self._pool.__aexit__(None, None, None))
        self._runner.close()
