"""A clipboard for each browser context. Chromium has one for all contexts of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from playwright.async_api import Browser, Page, Route

# Only pages of secure origins may use the clipboard. Nothing is ever fetched from there.
ADDRESS = "https://clipboard.invalid/"
# The keys that copy, cut or paste, in the browser's spelling.
CHORDS = {
    *(f"{held}+{key}" for held in ("Control", "Meta") for key in ("c", "x", "v", "Insert")),
    *(f"{held}+Shift+V" for held in ("Control", "Meta")),
    "Shift+Insert",
    "Shift+Delete",
}


class Clipboard:
    """One process's clipboard, lent to one context at a time, through a page of its own."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._page: Page | None = None
        self._lent = asyncio.Lock()

    async def around(self, text: str, do: Callable[[], Awaitable[None]]) -> str:
        """Do something with this text on the clipboard; what is on it afterwards."""
        async with self._lent:
            if self._page is None or self._page.is_closed():
                self._page = await self._open()
            await self._page.evaluate("text => navigator.clipboard.writeText(text)", text)
            try:
                await do()
                return str(await self._page.evaluate("navigator.clipboard.readText()"))
            finally:
                await self._page.evaluate("navigator.clipboard.writeText('')")

    async def _open(self) -> Page:
        context = await self._browser.new_context(permissions=["clipboard-read", "clipboard-write"])

        async def blank(route: Route) -> None:
            await route.fulfill(body="", content_type="text/html")

        await context.route("**", blank)
        page = await context.new_page()
        await page.goto(ADDRESS)
        return page
