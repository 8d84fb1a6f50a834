"""MiniWoB++ as an environment: a page that plays episodes and knows itself whether they are solved."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from playwright.async_api import Error

from holotron.actions.action import Action
from holotron.actions.coordinates import Space
from holotron.env.browser.local_input import clicked, moved, wheeled
from holotron.env.browser.local_page import LocalPage
from holotron.env.browser.local_pool import OpenPage
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed
from holotron.env.executor import Point, execute
from holotron.env.task import Task
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH, MiniWoBError, restartable, task_url

SPACE = Space("pixels", WIDTH, HEIGHT)
PARKED = (480, 310)
LONGEST_WAIT = 10.0  # seconds; longer waits than this have no use in tasks that take ten
NAVIGATED = "navigated or closed"  # what Chromium says of a question whose page is gone


@dataclass(frozen=True)
class MiniWoBResult:
    """Where an episode stands. raw_reward is in [-1, 1]; `reward` is what the package scales by the time used."""

    done: bool
    raw_reward: float = 0.0
    reward: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class MiniWoBConfig:
    """Sizes and limits.

    browsers: Chromium processes that share the pages; a crash takes down the pages of one.
    time_limit: seconds after which the page ends the episode with -1; "task" for the task's own (10 s for most), None
    for never: how fast a policy thinks then plays no part, and steps are what is limited.
    settle: longest wait, in seconds, for animations and short timers to end after an action; 0 does not wait, and a
    page that was not quiet by then is not waited for again in that episode.
    timeout: seconds without an answer after which a page counts as hung.
    restarts: tasks whose next episode begins in the page of the last one, if that was the same task. By default those
    that were measured to play then as in a page that was just loaded.
    """

    pages: int = 1
    browsers: int = 1
    executable: Path | None = None
    time_limit: float | Literal["task"] | None = None
    settle: float = 2.0
    timeout: float = 30.0
    restarts: frozenset[str] = field(default_factory=restartable)

    def __post_init__(self) -> None:
        for name in ("pages", "browsers"):
            if getattr(self, name) < 1:
                raise MiniWoBError(f"MiniWoBConfig.{name} is {getattr(self, name)}; it must be at least 1")
        if isinstance(self.time_limit, float | int) and self.time_limit <= 0:
            raise MiniWoBError(f"MiniWoBConfig.time_limit is {self.time_limit}; use None for no limit")
        if self.settle < 0 or self.timeout <= self.settle:
            raise MiniWoBError(
                f"MiniWoBConfig.settle is {self.settle}; it must lie between 0 and timeout {self.timeout}"
            )


class MiniWoBEnvironment(LocalPage):
    """One page of a `miniwob_pool`. A reward above 0 counts as success; a protocol may judge by another rule."""

    reason: ClassVar[str] = "the task is one page without an address bar"
    script_error: ClassVar[type[Exception]] = MiniWoBError

    def __init__(self, open_page: Callable[[], Awaitable[OpenPage]], config: MiniWoBConfig) -> None:
        super().__init__(open_page, config.timeout)
        self.config = config
        self.task = ""
        self.seed = 0
        self.instruction = ""
        self._result = MiniWoBResult(done=True)
        self._still = False  # nothing moves by itself, and nothing was done since the page was asked
        self._loaded = ""  # the task whose page can begin another episode
        self._first: Observation | None = None  # what reset saw, as long as it shows the page

    @property
    def size(self) -> tuple[int, int]:
        return WIDTH, HEIGHT

    async def reset(self, task: Task, seed: int) -> Observation:
        """Begin the episode of that seed, in a page just loaded or as if. The clock starts after the screenshot.

        task: `name` is one of MiniWoB++; `instruction` then has the text that the page draws.
        """
        name = task.name or ""
        url = task_url(name)
        limit = self.config.time_limit
        limit_ms = -1 if limit == "task" else 0 if limit is None else int(limit * 1000)
        self.task, self.seed, self.name = name, seed, f"{name} seed {seed}"
        self._result = MiniWoBResult(done=False)
        self._still, self._first = False, None
        if await self.ensure_open():
            self._loaded = ""
            await self.show()
        again = self._loaded == name and name in self.config.restarts
        self._loaded = ""
        if again:
            again = await self.evaluate("window.holotron ? holotron.leave() : false")
        await self._park_mouse(again)
        if not again:
            await self.guarded(self.opened.page.goto(url, wait_until="load", timeout=0))
        await self.restyle()
        start = "restart" if again else "start"
        self._loaded, self.instruction = name, await self.evaluate(f"holotron.{start}({seed}, {limit_ms})")
        observation = await self._look()
        still = await self.evaluate("holotron.run_clock()")
        self._still = still and limit is None
        self._first = observation if self._still else None
        return observation

    async def observe(self) -> Observation:
        """What the page shows once it is quiet: after `reset` what that saw, if nothing on the page moves by itself."""
        first, self._first = self._first, None
        if first is not None and not self.opened.page.is_closed():
            return first
        if not self._still:
            await self.result()
        return await self._look()

    async def act(self, action: Action) -> None:
        """Carry out an action. After the end of the episode nothing happens."""
        if self._result.done:
            return
        self._still, self._first = False, None
        try:
            await execute(self, action)
        except MiniWoBError as error:
            raise ActionFailed(str(error)) from error

    async def status(self) -> TaskStatus:
        result = await self.result()
        if not result.done:
            return TaskStatus()
        reward = 0.0 if math.isnan(result.raw_reward) else result.raw_reward
        return TaskStatus(True, reward, result.raw_reward > 0)

    async def step(self, action: Action) -> tuple[Observation, MiniWoBResult]:
        """Act, wait until the page is quiet, look."""
        await self.act(action)
        result = await self.result()
        return await self._look(), result

    async def result(self) -> MiniWoBResult:
        """Waits until the page is quiet. A page that navigated away has ended as if its time had run out."""
        if not self._result.done:
            question = f"window.holotron ? holotron.state({int(self.config.settle * 1000)}) : null"
            try:
                state = await self.evaluate(question, crash=lambda error: NAVIGATED not in error.message)
            except Error:  # in the middle of the question, by navigating or by dying; a page that navigated answers
                state = await self.evaluate(question)
            if state is None:
                self._result = MiniWoBResult(True, -1.0, -1.0, "the page was left")
            else:
                done, raw, reward, reason, self.instruction, still = state
                self._still = still and self.config.time_limit is None
                self._result = MiniWoBResult(done, _number(raw), _number(reward), reason)
        return self._result

    async def show(self) -> None:
        """Tells a page that was opened what to draw: the task's area, while it is laid out on its whole viewport.

        A screenshot of all that is shown takes fewer frames than one of a part, and each frame has fewer pixels. One of
        a part would leave the page at another size.
        """
        await self.guarded(self.opened.cdp.send("Emulation.setVisibleSize", {"width": WIDTH, "height": HEIGHT}))

    async def screenshot(self) -> bytes:
        return await self.captured()

    async def restyle(self) -> None:
        """Changes how the page looks, before its episode begins. These pages stay as they are."""

    # ---- what this surface does in its own way ----

    async def type_text(self, text: str) -> None:
        await self.type_keys(text)

    async def select_option(self, x: float, y: float, choice: str) -> None:
        # A click opens the list, on whose options the mouse has no effect; typing ahead finds them.
        await self.click(x, y)
        await self.type_text(choice)
        await self.press("Enter")

    async def scroll(self, dx: float, dy: float, at: Point | None = None) -> None:
        x, y = self.aim(*(at or (WIDTH // 2, HEIGHT // 2)))
        await self.send(moved(x, y))
        # The browser scrolls some time after the wheel has turned, so the page is asked whether and when.
        will_scroll = await self.evaluate(f"holotron.expect_scroll({x}, {y}, {dx}, {dy})")
        await self.send(wheeled(x, y, dx, dy))
        if will_scroll:
            await self.evaluate("holotron.scrolled()")

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, LONGEST_WAIT))

    async def _look(self) -> Observation:
        return Observation(await self.screenshot(), *self.size, f"miniwob:{self.task}", self.task)

    async def _park_mouse(self, leave: bool) -> None:
        """Beside the task's area: the mouse outlives the page, and what lies under it would look touched.

        leave: the page stays, and must forget by which means something was focused last.
        """
        await self.release()
        if leave:
            await self.press("Tab")
            await self.send(*clicked(*PARKED))
        elif self.mouse_used:
            await self.send(moved(*PARKED))
        self.mouse_used = False


def _number(reward: float | None) -> float:
    """A task's arithmetic can end in NaN, which arrives as None; no success rule accepts it."""
    return math.nan if reward is None else float(reward)
