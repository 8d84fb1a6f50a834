"""Keeps N agents busy until every task has been tried, through crashes of browsers and servers.

Only what says nothing about the policy is tried again: a browser that crashed, a model that could not be reached. What
is finished is on disk, so that a fleet that was killed goes on where it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from holotron.agent.agent import Ending, StepRecord
from holotron.agent.chat import ModelUnavailable
from holotron.env.errors import InfrastructureError
from holotron.env.task import Task
from holotron.episodes.errors import AlreadyFinished, BeingWritten
from holotron.episodes.record import EnvironmentInfo, EpisodeInfo, Outcome, PolicyInfo
from holotron.episodes.recording import outcome_of, step_of
from holotron.episodes.store import EpisodeStore
from holotron.episodes.writer import EpisodeWriter

Record = Callable[[StepRecord], Awaitable[None]]


class Attempt(Protocol):
    """A task in a world of its own, ready to begin. Its task may say more than the one that was asked for."""

    task: Task

    async def play(self, record: Record) -> Ending: ...


Open = Callable[[Task], AbstractAsyncContextManager[Attempt]]


@dataclass
class Counters:
    """How a fleet is getting on. problem: what spoiled an episode last."""

    total: int = 0
    running: int = 0
    finished: int = 0
    judged: int = 0
    succeeded: int = 0
    rewarded: float = 0.0
    skipped: int = 0
    retried: int = 0
    infrastructure: int = 0
    steps: int = 0
    problem: str = ""
    began: float = field(default_factory=time.monotonic)
    first_step: float | None = None  # when the first and the last step ended, by the clock of `began`
    last_step: float | None = None

    def add(self, other: Counters) -> None:
        """Count what another fleet did, too."""
        for name in (
            "running",
            "finished",
            "judged",
            "succeeded",
            "rewarded",
            "skipped",
            "retried",
            "infrastructure",
            "steps",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.problem = other.problem or self.problem
        for moment in (other.first_step, other.last_step):
            self._played_at(moment)

    def add_step(self) -> None:
        self.steps += 1
        self._played_at(time.monotonic())

    def _played_at(self, moment: float | None) -> None:
        if moment is not None:
            self.first_step = moment if self.first_step is None else min(self.first_step, moment)
            self.last_step = moment if self.last_step is None else max(self.last_step, moment)

    @property
    def steps_per_second(self) -> float:
        return self.steps / max(1e-9, time.monotonic() - self.began)

    @property
    def playing_steps_per_second(self) -> float:
        """Between the first step and the last: without the start of browsers and the end of the run."""
        if self.first_step is None or self.last_step is None or self.steps < 2:
            return 0.0
        return (self.steps - 1) / max(1e-9, self.last_step - self.first_step)


@dataclass
class Fleet:
    """Plays tasks, so many at a time, and records them in a store."""

    store: EpisodeStore
    open_attempt: Open
    policy: PolicyInfo
    environment: EnvironmentInfo
    _: KW_ONLY
    sessions: int = 8
    retries: int = 3
    pause: float = 0.5
    on_change: Callable[[Counters], None] = lambda _: None
    on_step: Callable[[Task, StepRecord], None] = lambda *_: None
    on_episode: Callable[[EpisodeInfo], None] = lambda _: None
    on_lost: Callable[[Task], None] = lambda _: None
    counters: Counters = field(default_factory=Counters, init=False)

    async def run(self, tasks: Iterable[Task]) -> Counters:
        """Until all are done; what the store has finished is skipped."""
        todo = list(tasks)
        left = await asyncio.to_thread(unfinished, self.store, todo)
        self.counters = Counters(total=len(todo), skipped=len(todo) - len(left))
        self.on_change(self.counters)
        return await self.play(iter(left))

    async def play(self, *queues: Iterator[Task] | AsyncIterator[Task]) -> Counters:
        """Until the queues are empty. An error that is no episode's, such as a full disk, ends the fleet.

        Sessions take turns among the queues.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self.sessions):
                    group.create_task(self._work(queues[number % len(queues)]))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors
        return self.counters

    async def _work(self, queue: Iterator[Task] | AsyncIterator[Task]) -> None:
        async for task in queue if isinstance(queue, AsyncIterator) else _each(queue):
            self.counters.running += 1
            try:
                await self._try(task)
            finally:
                self.counters.running -= 1
                self.on_change(self.counters)

    async def _try(self, task: Task) -> None:
        for attempt in range(self.retries + 1):
            if attempt:
                self.counters.retried += 1
                await asyncio.sleep(self.pause * 2**attempt)
            try:
                info = await self._once(task)
            except (AlreadyFinished, BeingWritten):
                self.counters.skipped += 1  # another fleet works on the same store
                return
            except InfrastructureError as error:
                self.counters.problem = str(error)
                continue  # it broke before there was anything to record
            assert info.outcome is not None
            if info.counts:
                self.on_episode(info)
                self.counters.finished += 1
                self.counters.judged += info.outcome.success is not None
                self.counters.succeeded += info.outcome.success is True
                self.counters.rewarded += info.outcome.reward or 0.0
                return
            self.counters.problem = info.outcome.detail
        self.counters.infrastructure += 1
        self.on_lost(task)

    async def _once(self, task: Task) -> EpisodeInfo:
        async with self.open_attempt(task) as attempt:
            begin = asyncio.to_thread(self.store.begin, attempt.task, self.policy, self.environment)
            begun = asyncio.ensure_future(begin)
            try:
                return await self._record(attempt, await asyncio.shield(begun))
            finally:
                (await begun).close()  # also if this was cancelled while the thread began it: else it stays locked

    async def _record(self, attempt: Attempt, writer: EpisodeWriter) -> EpisodeInfo:
        async def record(step: StepRecord) -> None:
            await asyncio.to_thread(writer.add_step, step_of(step), step.observation.image)
            self.counters.add_step()
            self.on_step(attempt.task, step)
            self.on_change(self.counters)

        try:
            outcome = outcome_of(await attempt.play(record))
        except (InfrastructureError, ModelUnavailable) as error:
            outcome = Outcome(reason="infrastructure", detail=f"{type(error).__name__}: {error}"[:2000])
        return await asyncio.to_thread(writer.finish, outcome)


async def _each(tasks: Iterator[Task]) -> AsyncIterator[Task]:
    for task in tasks:
        yield task


def unfinished(store: EpisodeStore, tasks: Iterable[Task]) -> list[Task]:
    """The tasks that the store has no counting episode of."""
    done = store.completed_keys()
    return [task for task in tasks if store.key(task) not in done]


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended a group of workers; the others are the same, or came of it."""
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
