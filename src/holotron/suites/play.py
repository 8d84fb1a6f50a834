"""Tasks of a suite played by a policy, by a teacher, or by a policy that a teacher corrects, into an episode store."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from holotron.actions.action import Action
from holotron.agent.agent import Agent, Budget, Ending
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import PolicyFormat
from holotron.agent.teacher import Supervision
from holotron.env.task import Task
from holotron.episodes.fleet import Attempt, Counters, Fleet, Open, Record, unfinished
from holotron.episodes.record import PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.episodes.worker_pool import Share, WorkerDied, share_out
from holotron.suites.suite import Suite

MAX_STEPS = "max_steps"  # in a task's `extra`: a budget of its own
ROUNDS = 4  # of worker processes: what those that died had in hand is played in the next
REPORT_SECONDS = 0.2


@dataclass(frozen=True)
class Play:
    """How tasks are played. Worker processes get a copy.

    taught: a teacher takes part. Without a model it plays, disturbed with the probability `noise` at each step, except
    in the share `calm` of all episodes; with one it watches, and plays on after so many `deviations`. seed: with it
    and the task, what a model in this process draws is decided. formats: by a task's benchmark, not policy_format.
    """

    suite: Suite[Any]
    store: Path
    policy: PolicyInfo
    policy_format: PolicyFormat
    budget: Budget
    rule: str
    taught: bool = False
    noise: float = 0.0
    calm: float = 0.0
    deviations: int = 2
    seed: int | None = None
    formats: Mapping[str, PolicyFormat] = field(default_factory=dict)

    def attempts(self, pool: Any, model: ChatModel | None) -> Open:
        """What a fleet opens for each task."""

        @asynccontextmanager
        async def opened(task: Task) -> AsyncIterator[Attempt]:
            async with self.suite.begin(pool, task) as env:
                yield _Attempt(self, model, env, task.model_copy(update={"text": env.instruction}))

        return opened

    def supervision(self, env: Any, task: Task, model: ChatModel | None) -> Supervision | None:
        if not self.taught:
            return None
        suite = self.suite
        disturbed = random.Random(f"noise/{task.name}/{task.seed}").random() < 1 - self.calm
        noise = self.noise if model is None and disturbed else 0.0
        chance = random.Random(f"{task.name}/{task.seed}/{noise}")

        async def disturb(last: Action | None, wanted: Action) -> Action | None:
            return await suite.disturbance(env, chance, last, wanted) if chance.random() < noise else None

        return Supervision(suite.teacher(env), self.deviations, suite.near, disturb)


@dataclass
class _Attempt:
    how: Play
    model: ChatModel | None
    env: Any
    task: Task

    async def play(self, record: Record) -> Ending:
        how, task = self.how, self.task
        steps = task.extra.get(MAX_STEPS)
        budget = replace(how.budget, steps=steps) if isinstance(steps, int) else how.budget
        supervision = how.supervision(self.env, task, self.model)
        agent = Agent(
            self.model,
            self.env,
            policy_format=how.formats.get(task.benchmark or "", how.policy_format),
            budget=budget,
            supervision=supervision,
            seed=None if how.seed is None else _drawn_by(how.seed, task),
            on_step=record,
        )
        return await how.suite.judge(self.env, task, await agent.run(task.text), how.rule)


def _drawn_by(seed: int, task: Task) -> int:
    return int.from_bytes(hashlib.sha256(repr((seed, *task.key)).encode()).digest()[:7], "big")


Player = Callable[..., Awaitable[Counters]]  # with the arguments of play_tasks


async def play_tasks(
    how: Play,
    tasks: Iterable[Task],
    model: ChatModel | None,
    *,
    sessions: int = 8,
    browsers: int = 1,
    workers: int = 1,
    on_change: Callable[[Counters], None] = lambda _: None,
) -> Counters:
    """Play what the store has not finished. sessions: episodes at once, over all workers; browsers: of each worker."""
    store, todo = EpisodeStore(how.store), list(tasks)
    left = await asyncio.to_thread(unfinished, store, todo)
    skipped, began = len(todo) - len(left), time.monotonic()
    rounds: list[dict[int, Counters]] = []  # what each worker said last

    def counted() -> Counters:
        counters = Counters(total=len(todo), skipped=skipped, began=began)
        for workers_of_round in rounds:
            for each in workers_of_round.values():
                counters.add(each)
        return counters

    def told(number: int, progress: Counters) -> None:
        rounds[-1][number] = progress
        on_change(counted())

    on_change(counted())
    while left:
        rounds.append({})
        used = min(workers, len(left))
        work = partial(_work, how, min(len(left), -(-sessions // used)), browsers)
        try:
            await share_out(work, left, model, workers=used, on_report=told, group=how.suite.page_of)
            break
        except WorkerDied:
            if len(rounds) == ROUNDS:
                raise
            for number, progress in rounds[-1].items():
                rounds[-1][number] = replace(progress, running=0)
            left = await asyncio.to_thread(unfinished, store, left)
    return counted()


def now_and_then(report: Callable[[Counters], None]) -> Callable[[Counters], None]:
    """Reports counters as they are, a few times a second at most."""
    reported = 0.0

    def told(counters: Counters) -> None:
        nonlocal reported
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            report(replace(counters))

    return told


async def _work(how: Play, sessions: int, browsers: int, share: Share[Task]) -> None:
    """What one worker does."""
    async with how.suite.pool(sessions, browsers) as pool:
        fleet = Fleet(
            EpisodeStore(how.store),
            how.attempts(pool, share.model),
            how.policy,
            how.suite.environment,
            sessions=sessions,
            on_change=now_and_then(share.report),
        )
        share.report(await fleet.play(*(share.take() for _ in range(sessions))))
