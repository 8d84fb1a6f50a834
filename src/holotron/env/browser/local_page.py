"""A page of a local pool as a surface: pointer and keys, and what the page answers, in limited time."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from playwright.async_api import Error, Page

from holotron.actions.action import Button
from holotron.actions.keys import playwright_keys
from holotron.env.browser.local_input import MAY_BE_NATIVE, Event, clicked, moved, pressed, released, typed
from holotron.env.browser.local_pool import OpenPage, close_quietly
from holotron.env.errors import ActionFailed, PageCrashed
from holotron.env.executor import Point, Surface

T = TypeVar("T")
DRAG_STEPS = 5
# A busy machine may not have drawn a frame yet, which Chromium reports in these words.
BUSY = "Unable to capture screenshot"
CAPTURES = 5


class LocalPage(Surface):
    """One page, opened when it is needed. One caller at a time uses it.

    After the page died everything but `ensure_open` raises PageCrashed, as does the call that found out. `script_error`
    is what `evaluate` raises where the expression fails.
    """

    script_error: ClassVar[type[Exception]] = RuntimeError

    def __init__(self, open_page: Callable[[], Awaitable[OpenPage]], seconds: float) -> None:
        self.name = ""  # what errors call the task
        self._open_page = open_page
        self._seconds = seconds
        self._current: OpenPage | None = None
        self._waiting: asyncio.Timeout | None = None
        self._closing: asyncio.Future[None] | None = None  # kept, or it would be collected before it is done
        self._release: Callable[[], Awaitable[None]] | None = None  # of the mouse button, while it is pressed
        self.mouse_used = False

    # ---- the page itself ----

    async def ensure_open(self) -> bool:
        """Open a page if there is none; whether one had to be opened."""
        if self._current is not None and not self._current.page.is_closed():  # its browser may have died meanwhile
            return False
        self._current = await self._open_page()
        self._current.page.once("crash", self._on_crash)
        self.mouse_used, self._release = False, None
        return True

    @property
    def opened(self) -> OpenPage:
        if self._current is None:
            raise PageCrashed(f"the page of {self.name or 'no task'} is gone; reset opens another")
        return self._current

    async def close(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            await close_quietly(current.page)

    async def evaluate(self, expression: str, crash: Callable[[Error], bool] = lambda _: True) -> Any:
        """The value of a JavaScript expression in the page, awaited if it is a promise. Policies must not use this."""
        call = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = await self.guarded(self.opened.cdp.send("Runtime.evaluate", call), crash)
        if problem := answer.get("exceptionDetails"):
            text = problem.get("exception", {}).get("description") or problem["text"]
            raise self.script_error(f"{self.name}: {text} in {expression[:200]}")
        return answer["result"].get("value")

    async def call(self, function: str, *arguments: object) -> Any:
        """The value of a JavaScript function applied to arguments that JSON can carry."""
        return await self.evaluate(f"({function})({', '.join(json.dumps(argument) for argument in arguments)})")

    async def screenshot(self) -> bytes:
        return await self.capture(*self.size)

    async def capture(self, width: int, height: int, scale: float = 1) -> bytes:
        """The upper left part of the page of that size, with so many pixels of the picture for each of its own."""
        return await self.captured(clip={"x": 0, "y": 0, "width": width, "height": height, "scale": scale})

    async def captured(self, **what: Any) -> bytes:
        """The part of the page that the browser shows, or what is said of `Page.captureScreenshot`."""
        # Faster compression, the same pixels.
        capture = {"format": "png", "optimizeForSpeed": True, **what}
        for _ in range(CAPTURES):
            try:
                answer = await self.guarded(
                    self.opened.cdp.send("Page.captureScreenshot", capture),
                    crash=lambda error: BUSY not in error.message,
                )
                return base64.b64decode(answer["data"])
            except Error:
                await asyncio.sleep(0.1)
        await self.close()
        raise PageCrashed(f"{self.name}: no screenshot in {CAPTURES} attempts")

    async def guarded(self, work: Awaitable[T], crash: Callable[[Error], bool] = lambda _: True) -> T:
        """Await something the browser does; if the browser fails at it, the page is given up."""
        try:
            async with asyncio.timeout(self._seconds) as self._waiting:
                return await work
        except TimeoutError:
            hung = self._current is not None
            await self.close()
            how = f"no answer within {self._seconds:g} s" if hung else "the page crashed"
            raise PageCrashed(f"{self.name}: {how}") from None
        except Error as error:
            if not crash(error):
                raise
            await self.close()
            raise PageCrashed(f"{self.name}: {error.message.splitlines()[0]}") from error
        finally:
            self._waiting = None

    def _on_crash(self, page: Page) -> None:
        """A page whose process died answers nothing, so a call that waits for it is ended."""
        if self._current is not None and self._current.page is page:
            self._current = None
            self._closing = asyncio.ensure_future(close_quietly(page))
            if self._waiting is not None:
                self._waiting.reschedule(asyncio.get_running_loop().time())

    # ---- pointer and keys ----

    async def click(self, x: float, y: float, button: Button = "left", count: int = 1) -> None:
        await self.send(*clicked(*self.aim(x, y), button, count))

    async def hover(self, x: float, y: float) -> None:
        await self.send(moved(*self.aim(x, y)))

    async def drag(self, start: Point, end: Point, steps: int = DRAG_STEPS) -> None:
        (x, y), (x2, y2) = self.aim(*start), self.aim(*end)
        if await self.call(MAY_BE_NATIVE, x, y):
            await self._drag_by_driver((x, y), (x2, y2), steps)
            return
        await self.send(moved(x, y))  # each move is seen in a frame of its own
        self._release = lambda: self.send(released(x2, y2))
        await self.send(pressed(x, y))
        for part in (step / steps for step in range(1, steps + 1)):
            await self.send(moved(x + (x2 - x) * part, y + (y2 - y) * part, held=True))
        await self.release()

    async def _drag_by_driver(self, start: Point, end: Point, steps: int) -> None:
        """The driver notices when the browser begins a drag of its own, and drops what is dragged."""
        mouse = self.opened.page.mouse
        await self.guarded(mouse.move(*start))
        self._release = lambda: self.guarded(mouse.up())
        await self.guarded(mouse.down())
        await self.guarded(mouse.move(*end, steps=steps))
        await self.release()

    async def press(self, keys: str, repeat: int = 1) -> None:
        page, chord = self.opened.page, playwright_keys(keys)
        if (events := typed([chord])) is not None:
            await self.send(*events * repeat)
            return
        try:
            for _ in range(repeat):
                await self.guarded(page.keyboard.press(chord), crash=lambda error: "Unknown key" not in error.message)
        except Error:
            raise ActionFailed(f"unknown key in {keys!r}; names are those of the DOM, such as Enter or a") from None

    async def type_keys(self, text: str) -> None:
        """Type a text key by key."""
        if (events := typed(text)) is not None:
            await self.send(*events)
        else:
            await self.guarded(self.opened.page.keyboard.type(text))

    async def send(self, *events: Event) -> None:
        """Send events at once, which arrive in this order, and wait until the page has had them."""
        cdp = self.opened.cdp
        await self.guarded(asyncio.gather(*(cdp.send(*event) for event in events)))

    async def release(self) -> None:
        """Let the mouse button go, which a drag that was cancelled left pressed."""
        if self._release is not None:
            await self._release()
        self._release = None

    def aim(self, x: float, y: float) -> Point:
        """Where the page is pointed at for a point of its picture; ActionFailed where that is not on it."""
        width, height = self.size
        if not (0 <= x < width and 0 <= y < height):
            raise ActionFailed(f"the point ({x:g}, {y:g}) is outside the task's area of {width}×{height} pixels")
        self.mouse_used = True
        return x, y
