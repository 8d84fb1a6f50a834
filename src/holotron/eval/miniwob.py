"""MiniWoB++ by one of its four protocols: held-out seeds, a budget of steps, success by the protocol's own rule."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holotron.agent.agent import Agent, Budget, Ending
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import WIDGET_KINDS, JsonFormat, PolicyFormat
from holotron.env.task import Task
from holotron.episodes.fleet import Attempt, Counters, Fleet, Record
from holotron.episodes.record import EnvironmentInfo, PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.eval.statistics import wilson
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.env import MiniWoBEnv
from holotron.suites.miniwob.errors import MiniWoBError
from holotron.suites.miniwob.pages import MiniWoB
from holotron.suites.miniwob.protocols import Protocol, find_protocol, is_success
from holotron.suites.miniwob.scripted import solvable, solve
from holotron.suites.miniwob.tasks import find_task
from holotron.suites.miniwob.world import MiniWoBWorld

BENCHMARK = "miniwob"
MANIFEST = "run.json"


class EvalError(ValueError):
    """The evaluation cannot be run as asked for."""


@dataclass(frozen=True)
class MiniWoBRun:
    """What is evaluated. `model` None plays by script, which shows what the harness can reach."""

    protocol: Protocol
    out: Path
    model: ChatModel | None
    policy: str
    seeds: tuple[int, ...] = ()
    sessions: int = 8
    browsers: int = 1
    policy_format: PolicyFormat = field(default_factory=lambda: JsonFormat(WIDGET_KINDS))
    seconds: float = 600.0

    @property
    def episodes(self) -> list[tuple[str, int]]:
        """Every task and seed, all tasks with the first seed first."""
        return [(task, seed) for seed in self.seeds or self.protocol.seeds for task in self.protocol.tasks]

    @property
    def manifest(self) -> dict[str, Any]:
        return {
            "benchmark": BENCHMARK,
            "protocol": self.protocol.name,
            "policy": self.policy,
            "tasks": list(self.protocol.tasks),
            "seeds": list(self.seeds or self.protocol.seeds),
            "format": self.policy_format.spec,
        }


def choose(protocol: str, tasks: Sequence[str] = ()) -> Protocol:
    """A protocol, or some of its tasks."""
    found = find_protocol(protocol)
    for task in tasks:
        find_task(task)
        if task not in found.tasks:
            raise EvalError(f"{task} is no task of {protocol}")
    return replace(found, tasks=tuple(tasks)) if tasks else found


async def evaluate(run: MiniWoBRun, on_change: Callable[[Counters], None] = lambda _: None) -> dict[str, Any]:
    """Play what is not played yet, and report. A run that was interrupted goes on from its folder."""
    if run.model is None and (missing := set(run.protocol.tasks) - set(solvable())):
        raise EvalError(f"{len(missing)} tasks have no script, {min(missing)} among them; name others with --tasks")
    _check_manifest(run)
    store = EpisodeStore(run.out)
    tasks = [Task(text=name, benchmark=BENCHMARK, name=name, seed=seed) for name, seed in run.episodes]
    config = MiniWoBConfig(pages=max(1, min(run.sessions, len(tasks))), browsers=run.browsers)
    async with MiniWoB(config) as pool:
        fleet = Fleet(
            store,
            lambda task: _attempt(run, pool, task),
            PolicyInfo(model=run.policy, extra={"format": run.policy_format.spec}),
            EnvironmentInfo(name="miniwob++", viewport=(160, 210)),
            sessions=config.pages,
            on_change=on_change,
        )
        counters = await fleet.run(tasks)
    return report(run, store, counters)


def _check_manifest(run: MiniWoBRun) -> None:
    """A folder belongs to one evaluation: scores of two policies in one table would be nobody's."""
    path = run.out / MANIFEST
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if different := [key for key, value in run.manifest.items() if before.get(key) != value]:
            raise EvalError(f"{run.out} holds another evaluation (its {different[0]} differs); choose another --out")
        return
    run.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run.manifest), encoding="utf-8")


def _attempt(run: MiniWoBRun, pool: MiniWoB, task: Task) -> AbstractAsyncContextManager[Attempt]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Attempt]:
        assert task.name is not None
        assert task.seed is not None
        async with pool.env() as env:
            await env.reset(task.name, task.seed)
            yield _Play(run, env, task.model_copy(update={"text": env.utterance}))

    return opened()


@dataclass
class _Play:
    run: MiniWoBRun
    env: MiniWoBEnv
    task: Task

    async def play(self, record: Record) -> Ending:
        run = self.run
        if run.model is None:
            return await self._scripted()
        agent = Agent(
            run.model,
            MiniWoBWorld(self.env, run.protocol.rule),
            policy_format=run.policy_format,
            budget=Budget(steps=run.protocol.max_steps, seconds=run.seconds),
            on_step=record,
        )
        ending = await agent.run(self.task.text)
        # Not solved within the budget is a failure, not an unknown.
        return ending if ending.success is not None else replace(ending, success=False, reward=0.0)

    async def _scripted(self) -> Ending:
        assert self.task.name is not None
        assert self.task.seed is not None
        try:
            played = await solve(self.env, self.task.name, self.task.seed)
        except MiniWoBError as error:
            return Ending("done", success=False, reward=0.0, detail=str(error))
        raw = played.result.raw_reward if played.result.done else 0.0
        solved = played.result.done and is_success(self.run.protocol.rule, self.task.name, raw)
        return Ending("done", success=solved, reward=raw)


def report(run: MiniWoBRun, store: EpisodeStore, counters: Counters) -> dict[str, Any]:
    """Success by task and over all, with intervals. Episodes that the infrastructure spoiled are counted apart."""
    played: dict[str, list[tuple[bool, float]]] = {task: [] for task in run.protocol.tasks}
    wanted = set(run.episodes)
    for info in store.list_episodes(finished=True):
        name, seed = info.task.name, info.task.seed
        if info.outcome is not None and info.counts and name is not None and (name, seed) in wanted:
            played[name].append((info.outcome.success is True, info.outcome.reward or 0.0))
    total = sum(map(len, played.values()))
    solved = sum(success for results in played.values() for success, _ in results)
    return {
        "benchmark": BENCHMARK,
        "protocol": run.protocol.name,
        "policy": run.policy,
        "success_rate": solved / total if total else None,
        "interval": list(wilson(solved, total)),
        "episodes": total,
        "successes": solved,
        "missing": len(wanted) - total,
        "infrastructure_failures": counters.infrastructure,
        "retried": counters.retried,
        "steps_per_second": counters.steps_per_second,
        "max_steps": run.protocol.max_steps,
        "tasks": [_row(name, results) for name, results in played.items()],
    }


def _row(name: str, results: list[tuple[bool, float]]) -> dict[str, Any]:
    solved = sum(success for success, _ in results)
    return {
        "task": name,
        "episodes": len(results),
        "successes": solved,
        "success_rate": solved / len(results) if results else None,
        "interval": list(wilson(solved, len(results))),
        "mean_reward": sum(reward for _, reward in results) / len(results) if results else None,
    }
