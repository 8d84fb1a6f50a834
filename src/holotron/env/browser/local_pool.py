"""Pages in contexts of their own that serve one task after another, opened again after they died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from playwright.async_api import Error, Page

from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.pool import Browsers, Lease
from holotron.env.browser.wire import OPEN_PORT, PageSession, Wire, port_of
from holotron.env.errors import PageCrashed

T = TypeVar("T")


@dataclass(frozen=True)
class OpenPage:
    page: Page
    cdp: PageSession


class SharedContext:
    """One context for many pages, opened in another process when its own died.

    options: Playwright's for `new_context`. script: runs in each page before its own. wired: the browsers have an open
    port, over which pages are asked.
    """

    def __init__(
        self,
        browsers: Browsers,
        options: dict[str, Any],
        *,
        script: Path | None = None,
        seconds: float = 30.0,
        wired: bool = False,
    ) -> None:
        self._browsers, self._options, self._script, self._seconds = browsers, options, script, seconds
        self._wired = wired
        self._port: int | None = None
        self._lease: Lease | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> Lease:
        """The context, opened if there is none or its process died."""
        async with self._opening:
            if self._lease is not None and self._lease.lost:
                await self._lease.close()
                self._lease = None
            if self._lease is None:
                self._lease = await self._browsers.open_context(**self._options)
                if self._script is not None:
                    await self._lease.context.add_init_script(path=self._script)
                if self._wired and (browser := self._lease.context.browser) is not None:
                    self._port = await port_of(browser)
            return self._lease

    async def open_page(self) -> OpenPage:
        """A new page; PageCrashed where none can be opened, and then the next one comes from another process."""
        try:
            async with asyncio.timeout(self._seconds):
                context = (await self.open()).context
                page = await context.new_page()
                wire = Wire.open(self._port, page) if self._port else context.new_cdp_session(page)
                return OpenPage(page, await wire)
        except (Error, TimeoutError) as error:
            if self._lease is not None:
                self._lease.give_up()
            raise PageCrashed(f"Chromium opens no page: {str(error) or 'no answer'}") from error


class EnvironmentPool(Generic[T]):
    """Environments on local pages: `async with pool`, then `async with pool.lease() as env`.

    make: an environment from what opens its page. Pages of one process share a context.
    """

    def __init__(
        self,
        make: Callable[[Callable[[], Awaitable[OpenPage]]], T],
        pages: int,
        *,
        launch: LaunchOptions,
        context: dict[str, Any],
        browsers: int = 1,
        script: Path | None = None,
        seconds: float = 30.0,
    ) -> None:
        self.browsers = Browsers(browsers, launch)
        wired = OPEN_PORT in launch.arguments
        self.contexts = [
            SharedContext(self.browsers, context, script=script, seconds=seconds, wired=wired) for _ in range(browsers)
        ]
        self.envs = [make(self.contexts[index % browsers].open_page) for index in range(pages)]
        self._free = list(self.envs)
        self._places = asyncio.Semaphore(pages)

    async def __aenter__(self) -> Self:
        try:
            await asyncio.gather(*(context.open() for context in self.contexts))
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def lease(self, wanted: Callable[[T], bool] = lambda _: False) -> AsyncIterator[T]:
        """An environment for one user at a time, as soon as one is free: a wanted one, or the one free for longest."""
        async with self._places:
            env = next(filter(wanted, self._free), self._free[0])
            self._free.remove(env)
            try:
                yield env
            finally:
                self._free.append(env)

    async def close(self) -> None:
        await self.browsers.close()


async def close_quietly(page: Page) -> None:
    """Close a page that may be dead."""
    with suppress(Error, TimeoutError):
        async with asyncio.timeout(5):
            await page.close()
