"""MiniWoB++ as a suite: 125 small tasks, four protocols, and an oracle for nearly every task."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from holotron.actions.action import Action, Click
from holotron.agent.formats.base import WIDGET_KINDS
from holotron.agent.teacher import TeacherFailed
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo
from holotron.suites.miniwob.environment import MiniWoBConfig, MiniWoBEnvironment
from holotron.suites.miniwob.oracle.registry import ORACLES, load_oracles
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.pool import miniwob_pool
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH, all_tasks, find_task, no_such_task
from holotron.suites.suite import EvalProtocol, Suite, SuiteError

CONTINUOUS_SUCCESS = 0.9
# Partial rewards are sums of fractions, which may miss 1 by a rounding error.
ROUNDING = 1e-9


class MiniWoBSuite(Suite[MiniWoBEnvironment]):
    """splits: BrowserGym's train and test."""

    name = "miniwob"
    kinds = WIDGET_KINDS
    splits = ("train", "test")
    near = 30
    calm = 0.5
    rule = "strict"
    page: type[MiniWoBEnvironment] = MiniWoBEnvironment

    @property
    def environment(self) -> EnvironmentInfo:
        return EnvironmentInfo(name="miniwob++", viewport=(WIDTH, HEIGHT))

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return tuple(name for name, task in all_tasks().items() if split in (None, task.split))

    def taught(self) -> tuple[str, ...]:
        return tuple(sorted(load_oracles()))

    def protocols(self) -> tuple[EvalProtocol, ...]:
        """The four ways MiniWoB++ is evaluated: which tasks, which seeds, how many steps, what counts as solved."""
        tasks = all_tasks()
        pix2act = tuple(name for name, task in tasks.items() if task.pix2act)
        webgum = tuple(name for name, task in tasks.items() if task.webgum)
        return (
            EvalProtocol("browsergym-125", tuple(tasks), 5, 10, "positive"),
            EvalProtocol("strict-125", tuple(tasks), 5, 10, "strict"),
            EvalProtocol("pix2act-58", pix2act, 100, 30, "positive"),
            # WebGUM names no limit on steps; this is Pix2Act's.
            EvalProtocol("webgum-56", webgum, 100, 30, "full"),
        )

    def pool(self, pages: int, browsers: int = 1) -> AbstractAsyncContextManager[Any]:
        return miniwob_pool(MiniWoBConfig(pages=pages, browsers=browsers), self.page)

    def page_of(self, task: Task) -> str | None:
        return task.name

    def lease(self, pool: Any, task: Task) -> AbstractAsyncContextManager[MiniWoBEnvironment]:
        return pool.lease(lambda env: env.task == task.name)

    def teacher(self, env: MiniWoBEnvironment) -> OracleTeacher:
        if env.task not in load_oracles():
            raise SuiteError(f"{env.task} has no oracle")
        return OracleTeacher(env)

    async def disturbance(
        self, env: MiniWoBEnvironment, chance: random.Random, last: Action | None, wanted: Action
    ) -> Action:
        """A click near the last one, beside the wanted one, or anywhere."""
        kind = chance.random()
        if kind < 0.3 and isinstance(last, Click):
            return _beside(last, 6, chance)
        if kind < 0.6 and isinstance(wanted, Click):
            return _beside(wanted, 90, chance)
        return Click(x=chance.randrange(20, 980), y=chance.randrange(260, 980))

    def is_success(self, rule: str, name: str, reward: float) -> bool:
        """positive: above 0. full: 1. strict: 1, or 0.9 where rewards are continuous and pixels rarely give 1."""
        if rule == "positive":
            return reward > 0
        if rule == "strict" and find_task(name).reward == "continuous":
            return reward >= CONTINUOUS_SUCCESS
        return reward >= 1 - ROUNDING

    def unknown(self, name: str) -> SuiteError:
        return SuiteError(no_such_task(name))


@dataclass(frozen=True)
class OracleTeacher:
    """The oracle of the task that an environment was reset to."""

    env: MiniWoBEnvironment

    async def ask(self) -> Action | None:
        """What the oracle would do now; TeacherFailed where the page was changed so that it cannot read it any more."""
        env = self.env
        try:
            return await ORACLES[env.task](PageInspector(env))
        except (LookupError, ValueError) as error:
            raise TeacherFailed(f"{env.task}, seed {env.seed}: {type(error).__name__}: {error}") from error


def _beside(click: Click, most: int, chance: random.Random) -> Click:
    """A click at most that many thousandths away."""
    x, y = (min(990, max(10, place + chance.randint(-most, most))) for place in (click.x, click.y))
    return Click(x=x, y=y)
