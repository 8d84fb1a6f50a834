"""One Chromium and the pages in it that tasks are shown on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType

from playwright.async_api import BrowserContext, Error, Playwright, async_playwright

from holotron.env.browser.chromium import find_chromium, launch_arguments
from holotron.env.errors import BrowserMissing, InfrastructureError
from holotron.suites.pages.world import OpenPage, PageWorld

ARGUMENTS = [
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the pages bring everything with them
    "--disable-partial-raster",  # redrawn parts of a page get edges that differ from those of a page drawn at once
]


class PagePool:
    """`async with PagePool(4) as pool`, then `async with pool.world() as world: await world.begin(task)`."""

    def __init__(self, pages: int = 2) -> None:
        self.pages = pages
        self._playwright: Playwright | None = None
        self._context: BrowserContext | None = None
        self._starting = asyncio.Lock()
        self._free: asyncio.Queue[PageWorld] = asyncio.Queue()

    async def __aenter__(self) -> PagePool:
        self._playwright = await async_playwright().start()
        for _ in range(self.pages):
            self._free.put_nowait(PageWorld(self._open_page))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None and self._context.browser is not None:
            await self._context.browser.close()
        if self._playwright is not None:
            await self._playwright.stop()

    @asynccontextmanager
    async def world(self) -> AsyncIterator[PageWorld]:
        """A page nobody else uses, as soon as there is one."""
        world = await self._free.get()
        try:
            yield world
        finally:
            self._free.put_nowait(world)

    async def _open_page(self) -> OpenPage:
        try:
            context = await self._living_context()
            page = await context.new_page()
            return OpenPage(page, await context.new_cdp_session(page))
        except Error as error:
            raise InfrastructureError(f"Chromium opens no page: {error.message.splitlines()[0]}") from error

    async def _living_context(self) -> BrowserContext:
        if self._playwright is None:
            raise RuntimeError("the pool is not running; use it as `async with PagePool() as pool`")
        async with self._starting:
            browser = self._context.browser if self._context is not None else None
            if self._context is None or browser is None or not browser.is_connected():
                path, how = find_chromium()
                if path is None:
                    raise BrowserMissing(f"no Chromium ({how}): playwright install chromium-headless-shell")
                browser = await self._playwright.chromium.launch(
                    executable_path=path, args=[*launch_arguments(), *ARGUMENTS]
                )
                self._context = await browser.new_context(device_scale_factor=1, locale="en-US", offline=True)
            return self._context
