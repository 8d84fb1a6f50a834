"""Recorded screenshots as a suite: what an attempt sees follows from its seed, sample and step, not its actions."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from holotron.actions.action import Action
from holotron.agent.formats.plain import NanoFormat
from holotron.bench.train import TASK
from holotron.env.environment import Observation, TaskStatus
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo
from holotron.model.image import image_size
from holotron.suites.suite import Suite

NUMBER = "/[0-9]|[1-9][0-9]{1,2}|1000/"


class RecordedEnvironment:
    """All attempts of a group begin with one screenshot. It ends after so many steps, well for every other attempt."""

    instruction = TASK

    def __init__(self, screens: _Screens) -> None:
        self._screens, self._steps, self._on_step = screens.screens, screens.steps, screens.on_step
        self._seed = self._sample = self._step = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self._seed, self._sample, self._step = seed, task.sample, 0
        return await self.observe()

    async def observe(self) -> Observation:
        which = f"{self._seed}/{self._sample if self._step else 0}/{self._step}"
        png = random.Random(which).choice(self._screens)
        return Observation(png, *image_size(png))

    async def act(self, action: Action) -> None:
        self._step += 1
        self._on_step()

    async def status(self) -> TaskStatus:
        good = self._sample % 2 == 0
        return TaskStatus(True, float(good), good) if self._step >= self._steps else TaskStatus()


@dataclass(frozen=True)
class _Screens:
    screens: Sequence[bytes]
    steps: int
    on_step: Callable[[], None]

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[RecordedEnvironment]:
        yield RecordedEnvironment(self)


class RecordedSuite(Suite[RecordedEnvironment]):
    name = "recorded"
    kinds = ("click",)

    def __init__(self, screens: Sequence[bytes], steps: int, on_step: Callable[[], None] = lambda: None) -> None:
        self._screens, self.max_steps = _Screens(screens, steps, on_step), steps

    @property
    def environment(self) -> EnvironmentInfo:
        return EnvironmentInfo(name=self.name, viewport=image_size(self._screens.screens[0]))

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return ("any",)

    def pool(self, pages: int, browsers: int = 1) -> AbstractAsyncContextManager[_Screens]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[_Screens]:
            yield self._screens

        return opened()


@dataclass(frozen=True)
class LettersThenClick(NanoFormat):
    """Answers of a length that is known: so many letters, in place of a thought, and a click."""

    letters: int = 128

    def schema(self, forced: bool = False) -> dict[str, Any]:
        click = r'"{\"action\":\"click\",\"x\":" NUMBER ",\"y\":" NUMBER "}"'
        return {"lark": f"start: LETTERS {click}\nLETTERS: /[a-z]{{{self.letters}}}/\nNUMBER: {NUMBER}\n"}
