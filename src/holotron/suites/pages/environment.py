"""Generated pages as an environment, and the judge of what was done on them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from holotron.actions.action import Action
from holotron.env.browser.dom_queries import QUERIES
from holotron.env.browser.launch import LaunchOptions
from holotron.env.browser.local_input import moved, wheeled
from holotron.env.browser.local_page import LocalPage
from holotron.env.browser.local_pool import EnvironmentPool, OpenPage
from holotron.env.browser.wire import port_arguments
from holotron.env.environment import Observation, TaskStatus
from holotron.env.errors import ActionFailed
from holotron.env.executor import Point, execute
from holotron.env.task import Task
from holotron.suites.pages.task import PageTask, draw_task

LONGEST_WAIT = 2.0  # seconds; nothing on these pages happens by itself
LONGEST_CALL = 20.0
STANDING = Path(__file__).with_name("standing.js").read_text(encoding="utf-8")
WON, LOST = TaskStatus(True, 1.0, True), TaskStatus(True, 0.0, False)


class PageEnvironment(LocalPage):
    """One page of a `page_pool`.

    A task ends when the policy says so (an Answer that is acted, or `judge`) or when it does what cannot be undone,
    which is worth nothing; so is whatever changes the page once all was done. Until then the status has the reward 1
    while all is done, and 0 while it is not. impossible: something was taken away, and giving up is right. view: of all
    pages, at one pixel for each of the page's, instead of those drawn.
    """

    reason: ClassVar[str] = "the task is one page without an address"

    def __init__(self, open_page: Callable[[], Awaitable[OpenPage]], view: tuple[int, int] | None = None) -> None:
        super().__init__(open_page, LONGEST_CALL)
        self._view = view
        self._task: PageTask | None = None
        self._shown_size = (0, 0)
        self._ending: TaskStatus | None = None
        self._solved_as: str | None = None  # how the page was when all was done
        self._spoiled = self.impossible = False
        self.ratio = 1.0

    @property
    def task(self) -> PageTask:
        if self._task is None:
            raise RuntimeError("no task was begun; await env.reset(task, seed) first")
        return self._task

    @property
    def instruction(self) -> str:
        return self.task.text

    @property
    def size(self) -> tuple[int, int]:
        return self.task.viewport

    async def reset(self, task: Task, seed: int) -> Observation:
        """Draw the page of this seed. task: `name` is a template's."""
        drawn, self.ratio = self.draw(task.name or "", seed)
        if self._view is not None:
            drawn, self.ratio = replace(drawn, viewport=self._view), 1.0
        await self.show(drawn)
        return await self.observe()

    def draw(self, name: str, seed: int) -> tuple[PageTask, float]:
        """The task of a seed, and the pixels of its picture for each of the page's."""
        return draw_task(name, seed), 1.0

    async def show(self, task: PageTask) -> None:
        """Begin a task that was drawn already. The one before is forgotten, whatever became of it."""
        self._task, self._ending, self.name = task, None, f"{task.template} seed {task.seed}"
        self._solved_as, self._spoiled, self.impossible = None, False, False
        if await self.ensure_open():
            self._shown_size = (0, 0)
        page, (width, height) = self.opened.page, task.viewport
        await self.release()
        if self._shown_size != task.viewport:
            await self.guarded(page.set_viewport_size({"width": width, "height": height}))
        self._shown_size = task.viewport
        await self.guarded(page.set_content(task.html))

    async def observe(self) -> Observation:
        return Observation(await self.screenshot(), *self.size)

    async def act(self, action: Action) -> None:
        """Carry out an action. After the end of the task nothing happens."""
        if self._ending is None:
            await execute(self, action)

    async def status(self) -> TaskStatus:
        if self._ending is not None:
            return self._ending
        lost, solved, page = await self.call(STANDING)
        if lost:
            self._ending = LOST
            return LOST
        if solved and self._solved_as is None:
            self._solved_as = page
        self._spoiled = self._spoiled or self._solved_as not in (None, page)
        if solved is None and not self.impossible:
            return TaskStatus()
        return TaskStatus(reward=float(bool(solved) and not self._spoiled and not self.impossible))

    async def can_tell(self) -> bool:
        """Whether the page alone shows that the task is done: it is not a question."""
        return (await self.call(STANDING))[1] is not None

    async def judge(self, answer: str) -> TaskStatus:
        """End the task with this answer: 1 if everything is done and the answer is what was asked for, else 0."""
        if self._ending is None:
            verdict = await self.evaluate("__page.judge()")
            right = verdict["answer"] is None or plain(answer) == plain(verdict["answer"])
            self._ending = WON if verdict["solved"] and right and not (self._spoiled or self.impossible) else LOST
        return self._ending

    # ---- what this surface does in its own way ----

    async def type_text(self, text: str) -> None:
        # At once: key by key would take as long as everything else together.
        await self.guarded(self.opened.page.keyboard.insert_text(text))

    async def select_option(self, x: float, y: float, choice: str) -> None:
        found = await self.call(QUERIES, "select", x, y, [choice])
        if "problem" in found:
            raise ActionFailed(found["problem"])

    async def scroll(self, dx: float, dy: float, at: Point | None = None) -> None:
        width, height = self.size
        x, y = at or (width // 2, height // 2)
        await self.send(moved(x, y))
        # The browser scrolls some time after the wheel has turned, so the page is asked whether and when.
        moves = dy != 0 and await self.evaluate(f"__page.will_scroll({x}, {y}, {dy})")
        await self.send(wheeled(x, y, dx, dy))
        if moves:
            await self.evaluate("__page.scrolled().then(() => true)")

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, LONGEST_WAIT))

    async def answer(self, text: str) -> None:
        await self.judge(text)

    async def give_up(self, why: str) -> None:
        self._ending = WON if self.impossible else LOST


def plain(text: str) -> str:
    """An answer without what people write differently: case, blanks, signs of currency and quotes around it."""
    words = re.sub(r"[€$£\"'“”‘’]|\b(eur|usd)\b", " ", text.lower()).split()
    return " ".join(words).rstrip(".! ")


ARGUMENTS = (
    *port_arguments(),
    "--host-resolver-rules=MAP * ~NOTFOUND",  # the pages bring everything with them
    "--disable-partial-raster",  # redrawn parts of a page get edges that differ from those of a page drawn at once
)
PageEnvironmentPool = EnvironmentPool[PageEnvironment]
CONTEXT = {"device_scale_factor": 1, "locale": "en-US", "offline": True}


def page_pool(
    pages: int = 2, browsers: int = 1, environment: Callable[..., PageEnvironment] = PageEnvironment
) -> PageEnvironmentPool:
    """`async with page_pool(4) as pool`, then `async with pool.lease() as env: await env.reset(task, seed)`."""
    launch = LaunchOptions(arguments=ARGUMENTS)
    return EnvironmentPool(environment, pages, launch=launch, context=CONTEXT, browsers=browsers, seconds=LONGEST_CALL)
