"""A suite: a named set of tasks with splits and protocols, environments to play them in, and teachers."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeVar

from holotron.actions.action import Action
from holotron.agent.agent import Ending
from holotron.agent.teacher import Teacher
from holotron.env.environment import Environment
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo

E = TypeVar("E", bound=Environment)
# Training draws from the first range and evaluations from the second, and no seed is in both.
TRAINING_SEEDS = range(1_000_000_000)
HELD_OUT_SEEDS = range(1_000_000_000, 2_000_000_000)


class SuiteError(ValueError):
    """A suite was asked for something that it has not."""


@dataclass(frozen=True)
class EvalProtocol:
    """A named evaluation. An episode that has not ended after `max_steps` is a failure; `rule` says what is solved."""

    name: str
    tasks: tuple[str, ...]
    episodes_per_task: int
    max_steps: int
    rule: str = "full"
    first: int = 0

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of each task, from the `first` held-out one on, so that smaller protocols are parts of larger ones."""
        return tuple(HELD_OUT_SEEDS[self.first : self.first + self.episodes_per_task])


class Suite(ABC, Generic[E]):
    """What a benchmark or a kind of world plugs in: how tasks are begun, judged, taught and disturbed.

    kinds: actions that make sense. splits: names of its parts; training_split: what may be learned from. tells_done: at
    each step the reward is 1 while all is done and 0 while it is not, None where the page cannot tell. view: of all
    tasks, where they do not draw or bring their own.

    What follows is for data by teachers. near: a point this near to the teacher's, in thousandths, is the same. calm:
    the share of episodes that no noise disturbs. max_steps and rule: as in a protocol.
    """

    name: str
    kinds: tuple[str, ...]
    splits: tuple[str, ...] = ()
    training_split: str | None = None
    tells_done: bool = False
    near: int = 0
    calm: float = 0.0
    max_steps: int = 20
    rule: str = "full"
    view: tuple[int, int] | None = None

    @property
    def environment(self) -> EnvironmentInfo:
        """What its episodes say of where they were played."""
        return EnvironmentInfo(name=self.name, viewport=self.view)

    @abstractmethod
    def names(self, split: str | None = None) -> tuple[str, ...]:
        """Its tasks, or those of one split."""

    def taught(self) -> tuple[str, ...]:
        """The tasks that have a teacher."""
        return ()

    def protocols(self) -> tuple[EvalProtocol, ...]:
        return ()

    def groups(self, name: str) -> tuple[str, ...]:
        """What a task is reported with, besides all of them: such as its difficulty."""
        return ()

    @abstractmethod
    def pool(self, pages: int, browsers: int = 1) -> AbstractAsyncContextManager[Any]:
        """What `begin` takes environments from: for so many episodes at once, over so many browsers."""

    def page_of(self, task: Task) -> Hashable:
        """Tasks for which this is equal are better played one after another in one environment."""
        return None

    def lease(self, pool: Any, task: Task) -> AbstractAsyncContextManager[E]:
        """An environment of the pool for the task."""
        return pool.lease()

    @asynccontextmanager
    async def begin(self, pool: Any, task: Task) -> AsyncIterator[E]:
        """An environment that was reset to the task, until the end of the block."""
        async with self.lease(pool, task) as env:
            await env.reset(task, task.seed or 0)
            yield env

    def teacher(self, env: E) -> Teacher:
        """Who knows what to do in the task that the environment was reset to."""
        raise SuiteError(f"the suite {self.name} has no teachers")

    async def disturbance(self, env: E, chance: random.Random, last: Action | None, wanted: Action) -> Action:
        """What a clumsy policy might do instead of what is wanted."""
        raise SuiteError(f"the suite {self.name} knows no disturbances")

    def is_success(self, rule: str, name: str, reward: float) -> bool:
        """Whether the reward that an episode of a task ended with counts as solved."""
        return reward == 1

    async def judge(self, env: E, task: Task, ending: Ending, rule: str) -> Ending:
        """The ending with its reward and success: what did not end within the budget is a failure, not unknown."""
        reward = ending.reward or 0.0
        return replace(ending, reward=reward, success=self.is_success(rule, task.name or "", reward))

    # ---- what is chosen from it ----

    def find_protocol(self, name: str, tasks: Sequence[str] = (), split: str | None = None) -> EvalProtocol:
        """A protocol, or the part of it with these tasks, of that split."""
        found = next((protocol for protocol in self.protocols() if protocol.name == name), None)
        if found is None:
            known = ", ".join(protocol.name for protocol in self.protocols())
            raise SuiteError(f"there is no protocol {name!r} of {self.name}; there are {known}")
        for task in tasks:
            if task not in self.names():
                raise self.unknown(task)
            if task not in found.tasks:
                raise SuiteError(f"{task} is no task of {name}")
        chosen = tuple(task for task in tasks or found.tasks if task in self.part(split))
        if not chosen:
            raise SuiteError(f"no task of {name} that was named is in the split {split!r}")
        return replace(found, tasks=chosen)

    def select(self, names: Sequence[str] = (), split: str | None = None, *, training: bool = False) -> tuple[str, ...]:
        """The named tasks that have a teacher and are in a split; all of them if none is named.

        training: without a split, those that may be learned from; others are refused.
        """
        chosen_split = split or (self.training_split if training else None)
        taught, part = self.taught(), self.part(chosen_split)
        for name in names:
            if name not in self.names():
                raise self.unknown(name)
            if name not in taught:
                without = ", ".join(known for known in self.names() if known not in taught)
                raise SuiteError(f"{name} has no teacher; all tasks of {self.name} have one but {without}")
            if split is None and name not in part:
                raise SuiteError(f"{name} is held out for evaluation; name its split if that is what it is for")
        chosen = tuple(name for name in names or taught if name in part)
        if not chosen:
            raise SuiteError(f"none of {', '.join(names)} is in the split {split!r} of {self.name}")
        return chosen

    def unknown(self, name: str) -> SuiteError:
        return SuiteError(f"there is no task {name!r} in {self.name}; there are {', '.join(sorted(self.names()))}")

    def tasks(self, names: Sequence[str], seeds: Sequence[int]) -> list[Task]:
        """All tasks with the first seed, then with the second, and so on."""
        return [self.task(name, seed) for seed in seeds for name in names]

    def task(self, name: str, seed: int) -> Task:
        """What the task says is known once an environment was reset to it; until then its name stands there."""
        return Task(text=name, benchmark=self.name, name=name, seed=seed)

    def training_tasks(self, names: Sequence[str], first_seed: int, episodes: int) -> list[Task]:
        """So many: every task once with each seed, in an order drawn for each; more of them begin with the fewer."""
        tasks: list[Task] = []
        for seed in count(first_seed):
            if len(tasks) >= episodes:
                return tasks[:episodes]
            if seed not in TRAINING_SEEDS:
                raise SuiteError(f"seed {seed} is held out for evaluations; training seeds end at {TRAINING_SEEDS[-1]}")
            order = list(names)
            random.Random(f"{first_seed}/{seed}").shuffle(order)
            tasks += self.tasks(order, [seed])
        raise AssertionError("seeds have no end")

    def part(self, split: str | None) -> tuple[str, ...]:
        """The tasks of a split, which must be there; all without one."""
        if split not in (None, *self.splits):
            raise SuiteError(f"there is no split {split!r} of {self.name}; choose {' or '.join(self.splits)}")
        return self.names(split)


def find_suite(name: str, root: Path | None = None, apps: Sequence[str] = ()) -> Suite[Any]:
    """A suite by its name, or several as one, as in miniwob+pages.

    root, apps: of webapps, the folder of the applications, and which of them.
    """
    from holotron.suites.bandit import BanditSuite
    from holotron.suites.libraries.suite import LibrariesSuite
    from holotron.suites.miniwob.suite import MiniWoBSuite
    from holotron.suites.miniwob.varied import VariedMiniWoBSuite
    from holotron.suites.mixed import MixedSuite
    from holotron.suites.pages.suite import PagesSuite
    from holotron.suites.pages.varied import VariedPagesSuite
    from holotron.suites.plain.suite import PlainSuite
    from holotron.suites.web import WebSuite
    from holotron.suites.webapps.suite import WebAppsSuite

    if "+" in name:
        return MixedSuite([find_suite(part, root if part == WebAppsSuite.name else None) for part in name.split("+")])
    if name == WebAppsSuite.name:
        return WebAppsSuite(root, tuple(apps))
    if root is not None:
        raise SuiteError(f"the suite {name} has no root; webapps has one")
    found = (
        *(MiniWoBSuite, PagesSuite, WebSuite, BanditSuite, WebAppsSuite),
        *(VariedMiniWoBSuite, VariedPagesSuite, LibrariesSuite, PlainSuite),
    )
    known: dict[str, type[Suite[Any]]] = {suite.name: suite for suite in found}
    if name not in known:
        raise SuiteError(f"there is no suite {name!r}; there are {', '.join(known)}")
    return known[name]()
