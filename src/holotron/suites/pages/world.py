"""A generated page as an agent sees it, and the judge of what was done on it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from playwright.async_api import CDPSession, Error, Page

from holotron.actions import action as a
from holotron.actions.keys import playwright_keys
from holotron.actions.space import Space
from holotron.env.browser.scripts import SELECT
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed, InfrastructureError
from holotron.suites.pages.task import PageTask

LONGEST_WAIT = 2.0  # seconds; nothing on these pages happens by itself
LONGEST_CALL = 20.0
DRAG_STEPS = 5
CLEAR_KEYS = ("Control+a", "Delete")
WON, LOST = TaskStatus(True, 1.0, True), TaskStatus(True, 0.0, False)


@dataclass(frozen=True)
class OpenPage:
    page: Page
    cdp: CDPSession


class PageWorld:
    """One page of a pool, for one task after another. Whoever uses it without an Agent acts an Answer as well.

    A task ends when the policy says so (`judge`) or when it does what cannot be undone, which is worth nothing.
    """

    def __init__(self, open_page: Callable[[], Awaitable[OpenPage]]) -> None:
        self._open_page = open_page
        self._opened: OpenPage | None = None
        self._task: PageTask | None = None
        self._space = Space("relative", 1, 1)
        self._size = (0, 0)
        self._ending: TaskStatus | None = None

    @property
    def task(self) -> PageTask:
        if self._task is None:
            raise RuntimeError("no task was begun; await world.begin(task) first")
        return self._task

    async def begin(self, task: PageTask) -> None:
        """Show the task's page. The one before is forgotten, whatever became of it."""
        if self._opened is None or self._opened.page.is_closed():
            self._opened, self._size = await self._open_page(), (0, 0)
        width, height = task.viewport
        if self._size != task.viewport:
            await self._guarded(self._opened.page.set_viewport_size({"width": width, "height": height}))
        self._size, self._task, self._ending = task.viewport, task, None
        self._space = Space("pixels", width, height)
        await self._guarded(self._opened.page.set_content(task.html))

    async def observe(self) -> Observation:
        width, height = self.task.viewport
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        # Faster compression, the same pixels.
        capture = {"format": "png", "clip": clip, "optimizeForSpeed": True}
        shot = await self._send("Page.captureScreenshot", capture)
        return Observation(base64.b64decode(shot["data"]), width, height)

    async def status(self) -> TaskStatus:
        if self._ending is None and await self.evaluate("__task.done"):
            self._ending = LOST
        return self._ending or TaskStatus()

    async def judge(self, answer: str) -> TaskStatus:
        """End the task with this answer: 1 if everything is done and the answer is what was asked for, else 0."""
        if self._ending is None:
            verdict = await self.evaluate("__page.judge()")
            right = verdict["answer"] is None or plain(answer) == plain(verdict["answer"])
            self._ending = WON if verdict["solved"] and right else LOST
        return self._ending

    async def act(self, action: a.Action) -> None:
        if self._ending is not None:
            return
        at, page = self._space.from_relative, self._page
        match action:
            case a.Click():
                await self._guarded(page.mouse.click(*at(action.x, action.y), button=action.button))
            case a.DoubleClick():
                await self._guarded(page.mouse.dblclick(*at(action.x, action.y)))
            case a.Hover():
                await self._guarded(page.mouse.move(*at(action.x, action.y)))
            case a.Drag():
                await self._drag(at(action.x, action.y), at(action.to_x, action.to_y))
            case a.Type():
                await self._type(action)
            case a.Press():
                for _ in range(action.repeat):
                    await self._guarded(page.keyboard.press(playwright_keys(action.keys)))
            case a.Scroll():
                await self._scroll(action)
            case a.Select():
                x, y = at(action.x, action.y)
                found = await self.evaluate(f"({SELECT})({x}, {y}, {json.dumps([action.option])})")
                if "problem" in found:
                    raise ActionFailed(found["problem"])
            case a.Wait():
                await asyncio.sleep(min(action.seconds, LONGEST_WAIT))
            case a.Answer():
                await self.judge(action.text)
            case a.Infeasible():
                self._ending = LOST
            case _:
                raise ActionFailed(f"{action.action} does nothing here: the task is one page without an address")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise. Policies must not use this."""
        answer = await self._send(
            "Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True}
        )
        if problem := answer.get("exceptionDetails"):
            text = problem.get("exception", {}).get("description") or problem["text"]
            raise RuntimeError(f"{self.task.template} seed {self.task.seed}: {text} in {expression[:200]}")
        return answer["result"].get("value")

    async def _type(self, action: a.Type) -> None:
        page = self._page
        if action.x is not None and action.y is not None:
            await self._guarded(page.mouse.click(*self._space.from_relative(action.x, action.y)))
        if action.clear:
            for keys in CLEAR_KEYS:
                await self._guarded(page.keyboard.press(keys))
        if action.text:
            # At once: key by key would take as long as everything else together.
            await self._guarded(page.keyboard.insert_text(action.text))
        if action.enter:
            await self._guarded(page.keyboard.press("Enter"))

    async def _scroll(self, action: a.Scroll) -> None:
        width, height = self.task.viewport
        sign = 1 if action.direction in ("down", "right") else -1
        upright = action.direction in ("up", "down")
        pixels = sign * action.amount * (height if upright else width) / 100
        x, y = width // 2, height // 2
        if action.x is not None and action.y is not None:
            x, y = self._space.from_relative(action.x, action.y)
        await self._guarded(self._page.mouse.move(x, y))
        # The browser scrolls some time after the wheel has turned, so the page is asked whether and when.
        moves = upright and await self.evaluate(f"__page.will_scroll({x}, {y}, {pixels})")
        await self._guarded(self._page.mouse.wheel(0 if upright else pixels, pixels if upright else 0))
        if moves:
            await self.evaluate("__page.scrolled().then(() => true)")

    async def _drag(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        mouse = self._page.mouse
        await self._guarded(mouse.move(*start))
        await self._guarded(mouse.down())
        await self._guarded(mouse.move(*end, steps=DRAG_STEPS))
        await self._guarded(mouse.up())

    @property
    def _page(self) -> Page:
        if self._opened is None:
            raise InfrastructureError("the page is gone; begin opens another")
        return self._opened.page

    async def _send(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if self._opened is None:
            raise InfrastructureError("the page is gone; begin opens another")
        answer: dict[str, Any] = await self._guarded(self._opened.cdp.send(method, parameters))
        return answer

    async def _guarded(self, work: Awaitable[Any]) -> Any:
        """Await something the browser does; if it fails at it, the page is given up."""
        try:
            async with asyncio.timeout(LONGEST_CALL):
                return await work
        except (Error, TimeoutError) as error:
            self._opened = None
            raise InfrastructureError(str(error) or f"no answer within {LONGEST_CALL:g} s") from error


def plain(text: str) -> str:
    """An answer without what people write differently: case, blanks, signs of currency and quotes around it."""
    words = re.sub(r"[€$£\"'“”‘’]|\b(eur|usd)\b", " ", text.lower()).split()
    return " ".join(words).rstrip(".! ")
