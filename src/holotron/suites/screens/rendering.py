"""Documents drawn in one Chromium: a screenshot of each, and what is on it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image
from playwright.async_api import Error, Page

from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.local_pool import SharedContext, close_quietly
from holotron.env.browser.pool import Browsers
from holotron.env.browser.wire import PageSession
from holotron.env.errors import InfrastructureError
from holotron.suites.screens.labels import ScreenElement, Writing, from_page

T = TypeVar("T")
LABELS = Path(__file__).with_name("labels.js").read_text()
ARGUMENTS = ("--host-resolver-rules=MAP * ~NOTFOUND", "--disable-checker-imaging", "--disable-partial-raster")
CONTEXT = {"device_scale_factor": 1, "locale": "en-US", "timezone_id": "UTC", "offline": True}
TIMEOUT = 20.0
# A tab that has drawn this many documents is replaced: memory that pages leave behind adds up.
DOCUMENTS_PER_TAB = 400
MOST_SIZES = 8  # of tabs that wait for documents of their size
SMALL = 260  # screens narrower than this hold smaller things
SHEET_COLUMNS, SHEET_ROWS = 8, 6
SHEET = Path(__file__).with_name("sheet.js").read_text()
LOOK_INTO = f"""(width, height, smallest) => {{
  const look = {LABELS.strip()};
  return [...document.querySelectorAll("iframe")].map((frame) => look(width, height, smallest, frame.contentDocument));
}}"""
WRITE = "(html) => { document.open(); document.write(html); document.close(); window.scrollTo(0, 0); }"


class RenderingError(RuntimeError):
    """A document cannot be drawn; another may."""


@dataclass(frozen=True)
class Document:
    """HTML that needs nothing else, or the address of a local file; scroll: how far down it is looked at, 0 to 1."""

    html: str
    width: int
    height: int
    about: Mapping[str, Any] = field(default_factory=dict)
    url: str = ""
    scroll: float = 0.0


@dataclass(frozen=True)
class Shot:
    """A screenshot and everything on it."""

    png: bytes
    width: int
    height: int
    elements: tuple[ScreenElement, ...]
    about: Mapping[str, Any]
    writing: Writing = field(default_factory=Writing)


class Renderer:
    """`async with Renderer() as renderer: shot = await renderer.draw(document)`; several may be drawn at once."""

    def __init__(self) -> None:
        self._browsers = Browsers(1, LaunchOptions(arguments=ARGUMENTS, hide_scrollbars=False))
        self._context = SharedContext(self._browsers, CONTEXT, seconds=TIMEOUT)
        self._tabs: dict[tuple[int, int], list[_Tab]] = {}

    async def __aenter__(self) -> Renderer:
        await self._context.open()  # a browser that does not start at all is no matter of one document
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._browsers.close()

    async def draw(self, document: Document) -> Shot:
        """RenderingError where it cannot be drawn."""
        return await self._in_tab((document.width, document.height), lambda tab: tab.draw(document))

    async def draw_sheet(self, documents: Sequence[Document]) -> list[Shot]:
        """HTML documents of one small size, up to SHEET_COLUMNS × SHEET_ROWS of them, in a fraction of the time."""
        assert len({(each.width, each.height) for each in documents}) == 1
        size = SHEET_COLUMNS * documents[0].width, SHEET_ROWS * documents[0].height
        return await self._in_tab(size, lambda tab: tab.draw_sheet(documents))

    async def _in_tab(self, size: tuple[int, int], work: Callable[[_Tab], Awaitable[T]]) -> T:
        tab: _Tab | None = None
        try:
            async with asyncio.timeout(TIMEOUT):
                free = self._tabs.setdefault(size, [])
                while free and tab is None:
                    tab = free.pop()
                    tab = None if tab.page.is_closed() else tab  # its browser may have died
                if tab is None:
                    tab = await self._resized_tab(*size) or await self._open_tab(*size)
                done = await work(tab)
        except (Error, TimeoutError, InfrastructureError) as error:
            if tab is not None:
                await close_quietly(tab.page)
            raise RenderingError(str(error) or f"no answer within {TIMEOUT:g} s") from error
        if tab.drawn >= DOCUMENTS_PER_TAB:
            await close_quietly(tab.page)
        else:
            free.append(tab)
        return done

    async def _resized_tab(self, width: int, height: int) -> _Tab | None:
        """One of another size that is free, where there are tabs of many sizes already."""
        others = [tabs for tabs in self._tabs.values() if tabs]
        if len(self._tabs) <= MOST_SIZES or not others:
            return None
        tab = others[0].pop(0)
        if tab.page.is_closed():
            return None
        await tab.page.set_viewport_size({"width": width, "height": height})
        return tab

    async def _open_tab(self, width: int, height: int) -> _Tab:
        opened = await self._context.open_page()
        await opened.page.set_viewport_size({"width": width, "height": height})
        return _Tab(opened.page, opened.cdp)


class _Tab:
    def __init__(self, page: Page, cdp: PageSession) -> None:
        self.page, self._cdp = page, cdp
        self.drawn = 0

    async def draw(self, document: Document) -> Shot:
        self.drawn += 1
        if document.url:
            await self.page.goto(document.url, wait_until="load", timeout=TIMEOUT * 500)
            await self._evaluate(
                "(part) => window.scrollTo(0, part * (document.documentElement.scrollHeight - innerHeight))",
                document.scroll,
            )
        else:
            await self._evaluate(WRITE, document.html)
        found = await self._evaluate(LABELS, document.width, document.height, smallest_side(document.width))
        return _shot(document, await self._capture(), found)

    async def draw_sheet(self, documents: Sequence[Document]) -> list[Shot]:
        self.drawn += len(documents)
        width, height = documents[0].width, documents[0].height
        await self._evaluate(SHEET, [each.html for each in documents], width, height, SHEET_COLUMNS)
        found = await self._evaluate(LOOK_INTO, width, height, smallest_side(width))
        with Image.open(io.BytesIO(await self._capture())) as image:
            sheet = image.convert("RGB")
        shots = []
        for index, (document, seen) in enumerate(zip(documents, found, strict=True)):
            left, top = index % SHEET_COLUMNS * width, index // SHEET_COLUMNS * height
            part = io.BytesIO()
            sheet.crop((left, top, left + width, top + height)).save(part, "PNG", compress_level=1)
            shots.append(_shot(document, part.getvalue(), seen))
        return shots

    async def _capture(self) -> bytes:
        answer = await self._cdp.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})
        return base64.b64decode(answer["data"])

    async def _evaluate(self, function: str, *arguments: object) -> Any:
        given = ", ".join(json.dumps(argument) for argument in arguments)
        call = {"expression": f"({function})({given})", "returnByValue": True}
        answer = await self._cdp.send("Runtime.evaluate", call)
        if problem := answer.get("exceptionDetails"):
            raise Error(problem.get("exception", {}).get("description") or problem["text"])
        return answer["result"].get("value")


def _shot(document: Document, png: bytes, found: Mapping[str, Any]) -> Shot:
    elements, writing = from_page(found)
    return Shot(png, document.width, document.height, elements, document.about, writing)


def smallest_side(width: int) -> int:
    """The least size, in pixels, of something worth asking about."""
    return 5 if width < SMALL else 8
