"""One page that plays episodes: reset, primitives in pixels, screenshot, reward."""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from playwright.async_api import CDPSession, Error, Page

from holotron.suites.miniwob.actions import Button, Click, Drag, Move, Press, Primitive, Scroll, TypeText, Wait
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.errors import MiniWoBCrashed, MiniWoBError
from holotron.suites.miniwob.observation import MiniWoBObservation, MiniWoBResult
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH, task_url

T = TypeVar("T")
CAPTURE = {
    "format": "png",
    "clip": {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1},
    "optimizeForSpeed": True,  # faster compression, the same pixels
}
PARKED = (480, 310)
NAVIGATED = "navigated or closed"  # what Chromium says of a question whose page is gone
LEFT_THE_PAGE = "the page was left"


@dataclass(frozen=True)
class OpenPage:
    page: Page
    cdp: CDPSession


class MiniWoBEnv:
    """One page. MiniWoB makes these; one caller at a time uses each.

    Anything but `reset` after the page died raises MiniWoBCrashed, as does whatever found out that it did.
    """

    def __init__(self, config: MiniWoBConfig, open_page: Callable[[], Awaitable[OpenPage]]) -> None:
        self.config = config
        self.task = ""
        self.seed = 0
        self._open_page = open_page
        self._current: OpenPage | None = None
        self._waiting: asyncio.Timeout | None = None
        self._closing: asyncio.Future[None] | None = None  # kept, or it would be collected before it is done
        self._mouse_used = self._mouse_down = False
        self.utterance = ""
        self._result = MiniWoBResult(done=True)

    async def reset(self, task: str, seed: int, *, reuse: bool = False) -> MiniWoBObservation:
        """Load the task's page afresh and begin the episode of that seed. The clock starts after the screenshot.

        reuse: where the last episode was of this task, begin on its page, at a third of the cost. The pages are made
        to be used so, but what an episode leaves behind may show: for data, not for judging.
        """
        url = task_url(task)
        limit = self.config.time_limit
        limit_ms = -1 if limit == "task" else 0 if limit is None else int(limit * 1000)
        again = reuse and task == self.task and self._result.reason != LEFT_THE_PAGE
        self.task, self.seed = task, seed
        self._result = MiniWoBResult(done=False)
        if self._current is None or self._current.page.is_closed():  # its browser may have died between episodes
            self._current = await self._open_page()
            self._current.page.once("crash", self._on_crash)
            self._mouse_used = self._mouse_down = again = False
        await self._park_mouse()
        if again:
            self.utterance = await self.evaluate(f"holotron.again({seed})")
        else:
            await self._guarded(self._opened.page.goto(url, wait_until="load", timeout=0))
            self.utterance = await self.evaluate(f"holotron.start({seed}, {limit_ms})")
        png = await self._screenshot()
        await self.evaluate("holotron.run_clock()")
        return MiniWoBObservation(png, WIDTH, HEIGHT, self.utterance)

    async def step(self, action: Primitive) -> tuple[MiniWoBObservation, MiniWoBResult]:
        """Act, wait until the page is quiet, look."""
        await self.act(action)
        result = await self.result()
        return MiniWoBObservation(await self._screenshot(), WIDTH, HEIGHT, self.utterance), result

    async def observe(self) -> MiniWoBObservation:
        await self.result()
        return MiniWoBObservation(await self._screenshot(), WIDTH, HEIGHT, self.utterance)

    async def result(self) -> MiniWoBResult:
        """Waits until the page is quiet. A page that navigated away has ended as if its time had run out."""
        if not self._result.done:
            try:
                state = await self._evaluate(self._state, crash=lambda error: NAVIGATED not in error.message)
            except Error:  # in the middle of the question, by navigating or by dying; a page that navigated answers
                state = await self._evaluate(self._state)
            if state is None:
                self._result = MiniWoBResult(True, -1.0, -1.0, LEFT_THE_PAGE)
            else:
                done, raw, reward, reason, self.utterance = state
                self._result = MiniWoBResult(done, _number(raw), _number(reward), reason)
        return self._result

    async def act(self, action: Primitive) -> None:
        """Perform one primitive. After the end of the episode nothing happens."""
        if self._result.done:
            return
        match action:
            case Click(x, y, button, count):
                await self.click(x, y, button, count)
            case Move(x, y):
                await self.move(x, y)
            case Drag(points, steps):
                await self.drag(points, steps)
            case TypeText(text):
                await self.type_text(text)
            case Press(keys):
                await self.press(keys)
            case Scroll(x, y, dy, dx):
                await self.scroll(x, y, dy, dx)
            case Wait(seconds):
                await asyncio.sleep(seconds)

    async def click(self, x: float, y: float, button: Button = "left", count: int = 1) -> None:
        self._aim(x, y)
        await self._guarded(self._opened.page.mouse.click(x, y, button=button, click_count=count))

    async def move(self, x: float, y: float) -> None:
        self._aim(x, y)
        await self._guarded(self._opened.page.mouse.move(x, y))

    async def drag(self, points: tuple[tuple[float, float], ...], steps: int = 5) -> None:
        if len(points) < 2:
            raise MiniWoBError(f"a drag needs at least two points, not {len(points)}")
        for x, y in points:
            self._aim(x, y)
        mouse = self._opened.page.mouse
        await self._guarded(mouse.move(*points[0]))
        self._mouse_down = True
        await self._guarded(mouse.down())
        for x, y in points[1:]:
            await self._guarded(mouse.move(x, y, steps=steps))
        await self._guarded(mouse.up())
        self._mouse_down = False

    async def type_text(self, text: str) -> None:
        await self._guarded(self._opened.page.keyboard.type(text))

    async def press(self, keys: str) -> None:
        page = self._opened.page
        try:
            await self._guarded(page.keyboard.press(keys), crash=lambda error: "Unknown key" not in error.message)
        except Error:
            raise MiniWoBError(f"unknown key in {keys!r}; names are those of the DOM, such as Enter or a") from None

    async def scroll(self, x: float, y: float, dy: float, dx: float = 0.0) -> None:
        self._aim(x, y)
        mouse = self._opened.page.mouse
        await self._guarded(mouse.move(x, y))
        # The browser scrolls some time after the wheel has turned, so the page is asked whether and when.
        will_scroll = await self.evaluate(f"holotron.expect_scroll({x}, {y}, {dx}, {dy})")
        await self._guarded(mouse.wheel(dx, dy))
        if will_scroll:
            await self.evaluate("holotron.scrolled()")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, awaited if it is a promise. Policies must not use this."""
        return await self._evaluate(expression)

    async def _evaluate(self, expression: str, crash: Callable[[Error], bool] = lambda _: True) -> Any:
        call = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = await self._guarded(self._opened.cdp.send("Runtime.evaluate", call), crash)
        if problem := answer.get("exceptionDetails"):
            text = problem.get("exception", {}).get("description") or problem["text"]
            raise MiniWoBError(f"{self.task} seed {self.seed}: {text} in {expression[:200]}")
        return answer["result"].get("value")

    async def call(self, function: str, *arguments: object) -> Any:
        """The value of a JavaScript function applied to arguments that JSON can carry."""
        return await self.evaluate(f"({function})({', '.join(json.dumps(argument) for argument in arguments)})")

    async def dom(self) -> dict[str, Any]:
        """The package's own tree of visible elements with their boxes. Not for policies that see pixels."""
        tree: dict[str, Any] = await self.evaluate("core.getDOMInfo()")
        return tree

    async def close(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            await _close(current.page)

    @property
    def _state(self) -> str:
        return f"window.holotron ? holotron.state({int(self.config.settle * 1000)}) : null"

    @property
    def _opened(self) -> OpenPage:
        if self._current is None:
            raise MiniWoBCrashed(f"the page of {self.task or 'no task'} is gone; reset opens another")
        return self._current

    def _aim(self, x: float, y: float) -> None:
        if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
            raise MiniWoBError(f"the point ({x:g}, {y:g}) is outside the task's area of {WIDTH}×{HEIGHT} pixels")
        self._mouse_used = True

    async def _park_mouse(self) -> None:
        """Beside the task's area: the mouse outlives the page, and what lies under it would look touched."""
        mouse = self._opened.page.mouse
        if self._mouse_down:  # a drag was cancelled half-way
            await self._guarded(mouse.up())
        if self._mouse_used:
            await self._guarded(mouse.move(*PARKED))
        self._mouse_used = self._mouse_down = False

    async def _screenshot(self) -> bytes:
        answer = await self._guarded(self._opened.cdp.send("Page.captureScreenshot", CAPTURE))
        return base64.b64decode(answer["data"])

    async def _guarded(self, work: Awaitable[T], crash: Callable[[Error], bool] = lambda _: True) -> T:
        """Await something the browser does; if the browser fails at it, give the page up."""
        try:
            async with asyncio.timeout(self.config.timeout) as self._waiting:
                return await work
        except TimeoutError:
            hung = self._current is not None
            await self.close()
            how = f"no answer within {self.config.timeout:g} s" if hung else "the page crashed"
            raise MiniWoBCrashed(f"{self.task} seed {self.seed}: {how}") from None
        except Error as error:
            if not crash(error):
                raise
            await self.close()
            raise MiniWoBCrashed(f"{self.task} seed {self.seed}: {error.message.splitlines()[0]}") from error
        finally:
            self._waiting = None

    def _on_crash(self, page: Page) -> None:
        """Nobody answers for a page whose process died, so whoever waits for it is told."""
        if self._current is not None and self._current.page is page:
            self._current = None
            self._closing = asyncio.ensure_future(_close(page))
            if self._waiting is not None:
                self._waiting.reschedule(asyncio.get_running_loop().time())


def _number(reward: float | None) -> float:
    """A task's arithmetic can end in NaN, which arrives as None; no success rule accepts it."""
    return math.nan if reward is None else float(reward)


async def _close(page: Page) -> None:
    """As well as a page that may be dead can be closed."""
    try:
        async with asyncio.timeout(5):
            await page.close()
    except (Error, TimeoutError):
        pass
