"""A small policy on MiniWoB++ by several protocols at once, in several processes: `python -m holotron.eval.sweep`.

Protocols that play the same seeds with the same budget share their episodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from holotron.agent.agent import Agent, Budget
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import NANO_WIDGETS
from holotron.env.errors import InfrastructureError
from holotron.eval.cpu_steal import stolen_seconds, stolen_since
from holotron.eval.statistics import typical, wilson
from holotron.eval.worker_pool import Share, share_out
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.pages import MiniWoB
from holotron.suites.miniwob.protocols import Protocol, find_protocol, is_success
from holotron.suites.miniwob.tasks import find_task
from holotron.suites.miniwob.world import MiniWoBWorld

TRIES = 3
Asked = tuple[str, int, int]  # task, seed, most steps


@dataclass(frozen=True)
class Episode:
    """One that was played. No reward: it had not ended after all steps. `broken`: the browser failed each time.

    seconds: of each step, from the screenshot to what became of the action; thinking: the policy's part of them. The
    rest is the page's, which may move for a while.
    """

    task: str
    seed: int
    max_steps: int
    steps: int
    reward: float | None
    broken: bool = False
    seconds: tuple[float, ...] = ()
    thinking: tuple[float, ...] = ()


def play_share(share: Share[Asked]) -> list[Episode]:
    with share.policy() as policy:
        return asyncio.run(_play(share, policy))


async def _play(share: Share[Asked], policy: ChatModel) -> list[Episode]:
    async with MiniWoB(MiniWoBConfig(pages=share.at_once)) as pool:
        return await share.each(lambda asked: play_episode(pool, policy, *asked))


async def play_episode(pool: MiniWoB, policy: ChatModel, task: str, seed: int, most: int) -> Episode:
    async with pool.env() as env:
        for _ in range(TRIES):
            try:
                await env.reset(task, seed)
                agent = Agent(policy, MiniWoBWorld(env), policy_format=NANO_WIDGETS, budget=Budget(steps=most))
                ending = await agent.run(env.utterance)
                seconds = tuple(round(step.timings.total, 3) for step in agent.steps)
                thinking = tuple(round(step.timings.think, 3) for step in agent.steps)
                return Episode(task, seed, most, len(seconds), ending.reward, seconds=seconds, thinking=thinking)
            except InfrastructureError:
                continue
    return Episode(task, seed, most, 0, None, broken=True)


def sweep(
    model: str,
    protocols: Iterable[Protocol],
    *,
    device: str | None = None,
    workers: int = 1,
    pages: int = 8,
    episodes_per_task: int | None = None,
) -> dict[str, Any]:
    """Play every episode the protocols ask for, once, and report each protocol."""
    chosen = list(protocols)
    wanted = {
        (task, seed, protocol.max_steps): None
        for protocol in chosen
        for seed in protocol.seeds[:episodes_per_task]
        for task in protocol.tasks
    }
    episodes = list(wanted)
    began, stolen = time.monotonic(), stolen_seconds()
    played = share_out(play_share, episodes, model, device=device, workers=workers, at_once=pages)
    seconds = time.monotonic() - began
    return {
        "model": model,
        "date": date.today().isoformat(),
        "seconds": seconds,
        "steps_per_second": sum(episode.steps for episode in played) / seconds,
        "at_once": workers * pages,
        "stolen_seconds": stolen_since(stolen),
        "step_seconds": typical([step for episode in played for step in episode.seconds]),
        "protocols": {protocol.name: report(protocol, played, episodes_per_task) for protocol in chosen},
        "episodes": [asdict(episode) for episode in sorted(played, key=lambda e: (e.task, e.seed, e.max_steps))],
    }


def report(protocol: Protocol, played: list[Episode], episodes_per_task: int | None = None) -> dict[str, Any]:
    """Success by task and over all. Broken episodes are left out and counted apart."""
    seeds = set(protocol.seeds[:episodes_per_task])
    results: dict[str, list[bool]] = {task: [] for task in protocol.tasks}
    broken = 0
    for episode in played:
        if episode.task in results and episode.seed in seeds and episode.max_steps == protocol.max_steps:
            if episode.broken:
                broken += 1
                continue
            reward = episode.reward
            results[episode.task].append(reward is not None and is_success(protocol.rule, episode.task, reward))
    total, solved = sum(map(len, results.values())), sum(map(sum, results.values()))
    return {
        "success_rate": solved / total if total else None,
        "interval": list(wilson(solved, total)) if total else None,
        "episodes": total,
        "successes": solved,
        "broken": broken,
        "tasks": {task: sum(given) / len(given) if given else None for task, given in results.items()},
    }


def _part(protocol: Protocol, split: str | None) -> Protocol:
    if split is None:
        return protocol
    return replace(protocol, tasks=tuple(task for task in protocol.tasks if find_task(task).split == split))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m holotron.eval.sweep", description=__doc__)
    parser.add_argument("model", help="a checkpoint folder of a small policy, or 'random'")
    parser.add_argument("--protocols", default="browsergym-125,strict-125")
    parser.add_argument("--split", choices=["train", "test"], help="only tasks of that part of BrowserGym's split")
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--pages", type=int, default=8, help="of each process")
    parser.add_argument("--episodes-per-task", type=int, help="fewer than the protocol's")
    parser.add_argument("--out", type=Path, help="file for the whole report as JSON")
    given = parser.parse_args()
    result = sweep(
        given.model,
        [_part(find_protocol(name), given.split) for name in given.protocols.split(",")],
        device=given.device,
        workers=given.workers,
        pages=given.pages,
        episodes_per_task=given.episodes_per_task,
    )
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result), encoding="utf-8")
    times = ", ".join(f"{name} {value:.2f} s" for name, value in result["step_seconds"].items())
    print(f"{given.model}: {result['seconds']:.0f} s, {result['steps_per_second']:.1f} steps/s, a step: {times}")
    for name, part in result["protocols"].items():
        low, high = part["interval"]
        print(
            f"{name}: {100 * part['success_rate']:.1f}% ({100 * low:.1f} to {100 * high:.1f}), "
            f"{part['successes']} of {part['episodes']}, {part['broken']} broken"
        )


if __name__ == "__main__":
    main()
