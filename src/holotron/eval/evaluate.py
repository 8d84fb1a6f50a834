"""The one evaluator: any suite by its protocols, from an episode store that a second run goes on in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from holotron.agent.agent import Budget
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import PolicyFormat
from holotron.env.task import Task
from holotron.episodes.fleet import Counters
from holotron.episodes.record import EpisodeInfo, PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.eval.cpu_steal import stolen_seconds, stolen_since
from holotron.eval.statistics import typical, wilson
from holotron.eval.stopping import how_stopped, stopping_rates
from holotron.suites.play import MAX_STEPS, Play, Player, play_tasks
from holotron.suites.suite import EvalProtocol, Suite

MANIFEST = "run.json"
Played = dict[tuple[str, int], EpisodeInfo]
Stopped = dict[tuple[str, int], str | None]


class EvalError(ValueError):
    """The evaluation cannot be run as asked for."""


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, where its episodes go, and with how much at once.

    Protocols that play the same task and seed share the episode: it has the larger budget of steps, and for the smaller
    one it is a failure if it took more. seeds: instead of the protocols'. sessions: episodes at once; workers: the
    processes that they are shared out to, each with so many browsers. noise: how often something clumsy is done when
    the teacher plays.
    """

    suite: Suite[Any]
    protocols: tuple[EvalProtocol, ...]
    out: Path
    policy: str
    policy_format: PolicyFormat
    seeds: tuple[int, ...] = ()
    sessions: int = 8
    workers: int = 1
    browsers: int = 1
    seconds: float = 600.0
    noise: float = 0.0

    def seeds_of(self, protocol: EvalProtocol) -> tuple[int, ...]:
        return self.seeds or protocol.seeds

    @property
    def tasks(self) -> list[Task]:
        """Every task and seed, all tasks with the first seed first, each with its budget of steps."""
        budgets: dict[tuple[str, int], int] = {}
        for protocol in self.protocols:
            for seed in self.seeds_of(protocol):
                for name in protocol.tasks:
                    budgets[name, seed] = max(budgets.get((name, seed), 0), protocol.max_steps)
        return [
            self.suite.task(name, seed).model_copy(update={"extra": {MAX_STEPS: steps}})
            for (name, seed), steps in budgets.items()
        ]

    @property
    def manifest(self) -> dict[str, Any]:
        return {
            "suite": self.suite.name,
            "protocols": [protocol.name for protocol in self.protocols],
            "policy": self.policy,
            "tasks": [list(protocol.tasks) for protocol in self.protocols],
            "seeds": [list(self.seeds_of(protocol)) for protocol in self.protocols],
            "format": self.policy_format.spec,
            "noise": self.noise,
            "view": self.suite.view and list(self.suite.view),
        }


async def evaluate(
    run: Evaluation,
    model: ChatModel | None,
    on_change: Callable[[Counters], None] = lambda _: None,
    player: Player = play_tasks,
) -> dict[str, Any]:
    """Play what is not played yet, and report. Without a model the teacher plays."""
    tasks = run.tasks
    if model is None and (missing := {task.name for task in tasks} - set(run.suite.taught())):
        raise EvalError(f"{len(missing)} tasks have no teacher, {min(map(str, missing))} among them; see --tasks")
    keep_manifest(run.out, run.manifest)
    began, stolen = time.monotonic(), stolen_seconds()
    play = Play(
        run.suite,
        run.out,
        PolicyInfo(model=run.policy, extra={} if model is None else {"format": run.policy_format.spec}),
        run.policy_format,
        Budget(seconds=run.seconds),
        run.protocols[0].rule,
        taught=model is None,
        noise=run.noise,
    )
    counters = await player(
        play, tasks, model, sessions=run.sessions, browsers=run.browsers, workers=run.workers, on_change=on_change
    )
    seconds = time.monotonic() - began
    return report(run) | {
        "date": date.today().isoformat(),
        "seconds": seconds,
        "steps_per_second": counters.steps / seconds,
        "playing_steps_per_second": counters.playing_steps_per_second,
        "sessions": run.sessions,
        "workers": run.workers,
        "stolen_seconds": stolen_since(stolen),
        "infrastructure_failures": counters.infrastructure,
        "retried": counters.retried,
        "problem": counters.problem,
    }


def keep_manifest(out: Path, manifest: dict[str, Any]) -> None:
    """A folder belongs to one evaluation: a table with scores of two policies would describe neither."""
    path = out / MANIFEST
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if different := [key for key, value in manifest.items() if before.get(key, value) != value]:
            raise EvalError(f"{out} holds another evaluation (its {different[0]} differs); choose another --out")
        return
    out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def played_episodes(run: Evaluation) -> list[EpisodeInfo]:
    """The evaluation's episodes that say something about the policy."""
    wanted = {(task.name, task.seed) for task in run.tasks}
    found = EpisodeStore(run.out).list_episodes(benchmark=run.suite.name, finished=True)
    return [info for info in found if info.counts and (info.task.name, info.task.seed) in wanted]


def judged(info: EpisodeInfo, reward: float) -> EpisodeInfo:
    """The episode with the reward that a judge gave it afterwards."""
    assert info.outcome is not None
    return info.model_copy(update={"outcome": info.outcome.model_copy(update={"reward": reward})})


def report(run: Evaluation, episodes: Iterable[EpisodeInfo] | None = None) -> dict[str, Any]:
    """What the store says by each protocol; the first one's figures stand at the top, too.

    episodes: instead of the store's; those that are not among them are missing.
    """
    store = EpisodeStore(run.out)
    found = played_episodes(run) if episodes is None else episodes
    played: Played = {(info.task.name or "", info.task.seed or 0): info for info in found}
    steps = {key: list(store.steps(info.id)) for key, info in played.items()}
    spent = [step.timings for each in steps.values() for step in each]
    stopped = {key: how_stopped(info, steps[key]) for key, info in played.items()} if run.suite.tells_done else {}
    protocols = {protocol.name: _figures(run, protocol, played, stopped) for protocol in run.protocols}
    first = run.protocols[0].name
    return {
        "benchmark": run.suite.name,
        "protocol": first,
        "policy": run.policy,
        **protocols[first],
        "step_seconds": typical([step.observe + step.think + step.act for step in spent]),
        "think_seconds": typical([step.think for step in spent]),
        "protocols": protocols,
    }


def _figures(run: Evaluation, protocol: EvalProtocol, played: Played, stopped: Stopped) -> dict[str, Any]:
    """Success by task and over all, with intervals. Episodes that the infrastructure spoiled are missing."""
    rows, wanted, ways = [], 0, []
    for name in protocol.tasks:
        keys = [(name, seed) for seed in run.seeds_of(protocol)]
        ways += [stopped[key] for key in keys if key in stopped]
        wanted += len(keys)
        rows.append(_row(run.suite, protocol, name, [played[key] for key in keys if key in played]))
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for group in row["groups"]:
            groups.setdefault(group, []).append(row)
    figures = _rate(rows)
    return {
        **figures,
        "missing": wanted - figures["episodes"],
        "max_steps": protocol.max_steps,
        **({"stopping": stopping_rates(ways)} if run.suite.tells_done else {}),
        **({"groups": {group: _rate(part) for group, part in groups.items()}} if groups else {}),
        "tasks": rows,
    }


def _rate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    total, solved = (sum(row[key] for row in rows) for key in ("episodes", "successes"))
    return {
        "success_rate": solved / total if total else None,
        "interval": list(wilson(solved, total)),
        "episodes": total,
        "successes": solved,
    }


def _row(suite: Suite[Any], protocol: EvalProtocol, name: str, played: list[EpisodeInfo]) -> dict[str, Any]:
    rewards, by_seed = [], {}
    for info in played:
        assert info.outcome is not None
        within = (info.step_count or 0) <= protocol.max_steps
        rewards.append((info.outcome.reward or 0.0) if within else 0.0)
        by_seed[str(info.task.seed or 0)] = suite.is_success(protocol.rule, name, rewards[-1])
    solved = sum(by_seed.values())
    return {
        "task": name,
        "groups": list(suite.groups(name)),
        "episodes": len(rewards),
        "successes": solved,
        "success_rate": solved / len(rewards) if rewards else None,
        "interval": list(wilson(solved, len(rewards))),
        "solved_by_seed": by_seed,
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        "mean_steps": sum(info.step_count or 0 for info in played) / len(played) if played else None,
    }
