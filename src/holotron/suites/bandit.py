"""The smallest world that can be learned: one picture, one click, and a third of it that is right. No browser.

It is for trying training out: a run takes seconds, and a policy that knows nothing is right every third time.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import cache

from PIL import Image, ImageDraw

from holotron.actions.action import Action, Click
from holotron.env.environment import Observation, TaskStatus
from holotron.env.task import Task
from holotron.suites.suite import Suite

SIDE = 48
PARTS = ("left", "middle", "right")


class BanditEnvironment:
    """A picture in three parts. The first action ends the task: a click on the part that it names is right."""

    def __init__(self) -> None:
        self._part, self._status = "", TaskStatus()

    @property
    def instruction(self) -> str:
        return f"Click {self._part}"

    async def reset(self, task: Task, seed: int) -> Observation:
        self._part, self._status = task.name or "", TaskStatus()
        return await self.observe()

    async def observe(self) -> Observation:
        return Observation(_picture(), SIDE, SIDE)

    async def act(self, action: Action) -> None:
        hit = isinstance(action, Click) and action.x * len(PARTS) // 1001 == PARTS.index(self._part)
        self._status = TaskStatus(True, float(hit), hit)

    async def status(self) -> TaskStatus:
        return self._status


@cache
def _picture() -> bytes:
    image = Image.new("RGB", (SIDE, SIDE), "white")
    for index, colour in enumerate(("red", "white", "blue")):
        ImageDraw.Draw(image).rectangle((index * SIDE // 3, 0, (index + 1) * SIDE // 3 - 1, SIDE), fill=colour)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


class _Tables:
    @asynccontextmanager
    async def lease(self) -> AsyncIterator[BanditEnvironment]:
        yield BanditEnvironment()


class BanditSuite(Suite[BanditEnvironment]):
    name = "bandit"
    view = SIDE, SIDE
    kinds = ("click",)
    max_steps = 1

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return PARTS

    def pool(self, pages: int, browsers: int = 1) -> AbstractAsyncContextManager[_Tables]:
        return nullcontext(_Tables())
