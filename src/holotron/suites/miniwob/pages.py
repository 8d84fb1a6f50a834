"""Chromium processes and the pages in them, replaced when they die."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType

from playwright.async_api import BrowserContext, Error, Playwright, async_playwright

from holotron.env.browser.chromium import VARIABLE, find_chromium, launch_arguments
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.env import MiniWoBEnv, OpenPage
from holotron.suites.miniwob.errors import MiniWoBCrashed, MiniWoBMissing

# Not the size of the task's area: dialogs centre themselves on the viewport, and the package's pages expect this one.
VIEWPORT = {"width": 500, "height": 320}
ARGUMENTS = [
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the pages are files; nothing else may be reached
    "--disable-checker-imaging",  # never a frame without a picture that is still being decoded
    "--disable-partial-raster",  # redrawn parts of a page get edges that differ from those of a page drawn at once
    "--disable-smooth-scrolling",  # a screenshot right after the wheel shows the place scrolled to
]
# Playwright hides scroll bars by default; in several tasks they are the only sign that there is more to see.
UNWANTED = ["--hide-scrollbars"]
SCRIPT = Path(__file__).with_name("page.js")


class MiniWoB:
    """A pool of pages: `async with MiniWoB(MiniWoBConfig(pages=8)) as pool`, then `async with pool.env() as env`."""

    def __init__(self, config: MiniWoBConfig | None = None) -> None:
        self.config = config or MiniWoBConfig()
        self._playwright: Playwright | None = None
        self._browsers = [_Browser(self.config) for _ in range(self.config.browsers)]
        self.envs = [self._make_env(index) for index in range(self.config.pages)]
        self._free: asyncio.Queue[MiniWoBEnv] = asyncio.Queue()

    async def __aenter__(self) -> MiniWoB:
        self._playwright = await async_playwright().start()
        try:
            await asyncio.gather(*(browser.context(self._playwright) for browser in self._browsers))
        except BaseException:
            await self.close()
            raise
        for env in self.envs:
            self._free.put_nowait(env)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def env(self) -> AsyncIterator[MiniWoBEnv]:
        """A page nobody else uses, as soon as there is one."""
        env = await self._free.get()
        try:
            yield env
        finally:
            self._free.put_nowait(env)

    async def close(self) -> None:
        for browser in self._browsers:
            await browser.close()
        if self._playwright is not None:
            await self._playwright.stop()
            self._playwright = None

    def _make_env(self, index: int) -> MiniWoBEnv:
        browser = self._browsers[index % len(self._browsers)]

        async def open_page() -> OpenPage:
            if self._playwright is None:
                raise RuntimeError("MiniWoB is not running; use it as `async with MiniWoB(...) as miniwob`")
            return await browser.open_page(self._playwright)

        return MiniWoBEnv(self.config, open_page)


class _Browser:
    """One Chromium, started again when it is found dead."""

    def __init__(self, config: MiniWoBConfig) -> None:
        self._config = config
        self._context: BrowserContext | None = None
        self._starting = asyncio.Lock()

    async def open_page(self, playwright: Playwright) -> OpenPage:
        try:
            async with asyncio.timeout(self._config.timeout):
                context = await self.context(playwright)
                page = await context.new_page()
                return OpenPage(page, await context.new_cdp_session(page))
        except (Error, TimeoutError) as error:
            await self.close()  # whatever is left of it; the next call starts another
            raise MiniWoBCrashed(f"Chromium opens no page: {str(error) or 'no answer'}") from error

    async def context(self, playwright: Playwright) -> BrowserContext:
        async with self._starting:
            if self._context is None or self._context.browser is None or not self._context.browser.is_connected():
                browser = await playwright.chromium.launch(
                    executable_path=self._config.executable or find_browser(),
                    args=[*launch_arguments(), *ARGUMENTS],
                    ignore_default_args=UNWANTED,
                )
                self._context = await browser.new_context(
                    viewport={"width": VIEWPORT["width"], "height": VIEWPORT["height"]},
                    device_scale_factor=1,
                    locale="en-US",
                    timezone_id="UTC",
                    offline=True,
                )
                await self._context.add_init_script(path=SCRIPT)
            return self._context

    async def close(self) -> None:
        context, self._context = self._context, None
        if context is not None and context.browser is not None:
            try:
                async with asyncio.timeout(5):
                    await context.browser.close()
            except (Error, TimeoutError):
                pass


def find_browser() -> Path:
    """The Chromium that $HOLOTRON_CHROMIUM names, else the headless shell (twice as fast to load a page), else any."""
    shell = shutil.which("chromium-headless-shell")
    if shell is not None and not os.environ.get(VARIABLE):
        return Path(shell)
    path, how = find_chromium()
    if path is None:
        raise MiniWoBMissing(f"no Chromium ({how}): playwright install chromium-headless-shell")
    return path
