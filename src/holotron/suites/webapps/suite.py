"""Web applications of a folder as a suite: an instruction is a task, and the application's verifier judges it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from holotron.agent.agent import Ending
from holotron.agent.formats.base import PAGE_KINDS
from holotron.env.task import Task
from holotron.suites.suite import EvalProtocol, Suite, SuiteError
from holotron.suites.webapps.catalog import SPLITS, AppTask, read_tasks_of
from holotron.suites.webapps.environment import AppEnvironment, AppPool

WIDTH, HEIGHT, MAX_STEPS = 1440, 900, 50


@dataclass(frozen=True)
class WebAppsSuite(Suite[AppEnvironment]):
    """root: the folder of WebArena-Infinity, or another with applications in its layout. apps: some of them, or all.

    A task is named APP/SPLIT/ID. splits: `real`, what people want done, and `function`, single features. There are no
    teachers.
    """

    root: Path | None = None
    apps: tuple[str, ...] = ()

    name = "webapps"
    kinds = PAGE_KINDS
    splits = SPLITS
    max_steps = MAX_STEPS
    view = WIDTH, HEIGHT

    @cached_property
    def catalog(self) -> dict[str, AppTask]:
        if self.root is None:
            raise SuiteError("the suite webapps needs a root: the folder of WebArena-Infinity, or of its apps")
        return read_tasks_of(self.root, self.apps)

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return tuple(name for name, task in self.catalog.items() if split in (None, task.split))

    def groups(self, name: str) -> tuple[str, ...]:
        task = self.catalog[name]
        return tuple(filter(None, (task.difficulty, task.app.name)))

    def protocols(self) -> tuple[EvalProtocol, ...]:
        return (EvalProtocol("infinity", self.names(), 1, MAX_STEPS),)

    def task(self, name: str, seed: int) -> Task:
        return Task(text=self.catalog[name].instruction, benchmark=self.name, name=name, seed=seed)

    def unknown(self, name: str) -> SuiteError:
        near = get_close_matches(name, self.names(), 5)
        hint = f"did you mean {', '.join(near)}?" if near else f"names are like {next(iter(self.names()))}"
        return SuiteError(f"there is no task {name!r} in {self.root}; {hint}")

    def pool(self, pages: int, browsers: int = 1) -> AppPool:
        return AppPool(pages, browsers, (WIDTH, HEIGHT))

    @asynccontextmanager
    async def begin(self, pool: AppPool, task: Task) -> AsyncIterator[AppEnvironment]:
        async with pool.begin(self.catalog[task.name or ""], task) as env:
            yield env

    async def judge(self, env: AppEnvironment, task: Task, ending: Ending, rule: str) -> Ending:
        """By the state that was left, however the episode ended; what was answered plays no part."""
        verdict = await env.judge()
        said = ending.answer or ending.detail
        detail = f"{said}; verifier: {verdict.message}" if said else f"verifier: {verdict.message}"
        return replace(ending, answer="", detail=detail, success=verdict.passed, reward=float(verdict.passed))
