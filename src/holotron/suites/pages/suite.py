"""Generated pages as a suite: a template is a task, and the page itself its teacher."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from holotron.actions.action import Action
from holotron.agent.agent import Ending
from holotron.agent.formats.base import PAGE_KINDS
from holotron.env.task import Task
from holotron.suites.pages.environment import PageEnvironment, page_pool
from holotron.suites.pages.starts import STOPPING_FROM, draw_start, put_at
from holotron.suites.pages.task import all_templates
from holotron.suites.pages.teacher import PageTeacher, disturbance
from holotron.suites.suite import EvalProtocol, Suite


class PagesSuite(Suite[PageEnvironment]):
    """splits: templates to learn from, and those that are held out for evaluation."""

    name = "pages"
    kinds = (*PAGE_KINDS, "infeasible")
    splits = ("train", "held-out")
    training_split = "train"
    near = 12  # rows of lists are no more than twice as high
    max_steps = 30
    tells_done = True
    page: type[PageEnvironment] = PageEnvironment

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return tuple(found.name for found in all_templates(None if split is None else split == "held-out"))

    def taught(self) -> tuple[str, ...]:
        return self.names()

    def protocols(self) -> tuple[EvalProtocol, ...]:
        return (
            EvalProtocol("held-out", self.names("held-out"), 20, 15),
            EvalProtocol("taught", self.names("train"), 20, 15),
            EvalProtocol("stopping", self.names("train"), 2, 15, first=STOPPING_FROM),
        )

    def pool(self, pages: int, browsers: int = 1) -> AbstractAsyncContextManager[Any]:
        return page_pool(pages, browsers, partial(self.page, view=self.view))

    @asynccontextmanager
    async def begin(self, pool: Any, task: Task) -> AsyncIterator[PageEnvironment]:
        async with super().begin(pool, task) as env:
            await put_at(env, draw_start(task.name or "", task.seed or 0))
            yield env

    def teacher(self, env: PageEnvironment) -> PageTeacher:
        return PageTeacher(env)

    async def disturbance(
        self, env: PageEnvironment, chance: random.Random, last: Action | None, wanted: Action
    ) -> Action:
        return await disturbance(env, chance, last, wanted)

    async def judge(self, env: PageEnvironment, task: Task, ending: Ending, rule: str) -> Ending:
        """The page judges an answer; whatever else ended the episode is worth nothing."""
        if ending.reason == "infeasible":
            await env.give_up(ending.detail)
            ending = replace(ending, reward=(await env.status()).reward)
        if ending.reason == "answered" or ending.forced:
            ending = replace(ending, reward=(await env.judge(ending.answer)).reward)
        return await super().judge(env, task, ending, rule)
