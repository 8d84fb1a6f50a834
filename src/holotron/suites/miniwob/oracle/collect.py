"""Many episodes by oracles into shards, from several pages at once; with a policy, on states it gets itself into."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holotron.actions.action import Action
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import NANO_WIDGETS
from holotron.env.errors import InfrastructureError
from holotron.episodes.examples import Example
from holotron.episodes.shards import ShardWriter
from holotron.suites.dagger import TeacherTask, relabel
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.env import MiniWoBEnv
from holotron.suites.miniwob.errors import MiniWoBError
from holotron.suites.miniwob.oracle.play import OracleFailed, ask, is_solved, play
from holotron.suites.miniwob.oracle.teachers import load_teachers
from holotron.suites.miniwob.pages import MiniWoB
from holotron.suites.miniwob.world import MiniWoBWorld

# A point this near to the oracle's, in thousandths, is the same click.
SAME_POINT = 30
LAST_TRAINING_SEED = 10**9
# Tasks whose pages keep something of the episode before.
FRESH_PAGE = frozenset(
    {"book-flight-nodelay", "copy-paste-2", "daily-calendar", "stock-market", "use-colorwheel", "use-colorwheel-2"}
)


@dataclass(frozen=True)
class Collecting:
    """What one worker does: rounds over all tasks, a few seeds of each in a row, every worker with seeds of its own.

    run: episodes in a row on one page; loading it costs as much as three steps.
    """

    out: Path
    tasks: tuple[str, ...]
    worker: int = 0
    workers: int = 1
    first_seed: int = 0
    episodes: int | None = None
    seconds: float | None = None
    pages: int = 4
    run: int = 4
    noise: float = 0.1
    max_steps: int = 20
    deviations: int = 2
    shard_bytes: int = 8 << 20


async def collect(
    asked: Collecting, policy: ChatModel | None = None, on_episode: Callable[[Counter[str]], None] = lambda _: None
) -> Counter[str]:
    """Play until there are enough episodes or the time is up; counts of episodes, samples and failures."""
    load_teachers()
    counts: Counter[str] = Counter()
    deadline = None if asked.seconds is None else time.monotonic() + asked.seconds
    queue = _Queue(asked)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    def over() -> bool:
        return stop.is_set() or (deadline is not None and time.monotonic() > deadline)

    async def page(pool: MiniWoB, shards: ShardWriter) -> None:
        while not over() and (drawn := queue.next()) is not None:
            task, seeds = drawn
            async with pool.env() as env:
                for seed in seeds:
                    await episode(env, task, seed, shards)
                    if over():
                        break

    async def episode(env: MiniWoBEnv, task: str, seed: int, shards: ShardWriter) -> None:
        try:
            samples = await _episode(env, task, seed, asked, policy)
        except (InfrastructureError, MiniWoBError):
            counts["broken"] += 1
            return
        counts["episodes"] += 1
        counts[f"{'kept' if samples else 'lost'} {task}"] += 1
        for sample in samples:
            counts["samples"] += 1
            counts["steps"] += len(sample.turns)
            shards.add(sample)
        on_episode(counts)

    prefix = asked.out / f"{'dagger' if policy else 'oracle'}-{asked.first_seed}-{asked.worker:03d}"
    async with MiniWoB(MiniWoBConfig(pages=asked.pages)) as pool:
        with ShardWriter(prefix, asked.shard_bytes) as shards:
            await asyncio.gather(*(page(pool, shards) for _ in range(asked.pages)))
    return counts


class _Queue:
    """Tasks in an order drawn anew for each seed, so that all are played about equally often at any time."""

    def __init__(self, asked: Collecting) -> None:
        self._asked = asked
        self._round, self._left, self._given = -1, [], 0  # type: int, list[str], int

    def next(self) -> tuple[str, range] | None:
        """A task and the seeds to play it with."""
        asked = self._asked
        left = asked.run if asked.episodes is None else min(asked.run, asked.episodes - self._given)
        if left < 1:
            return None
        if not self._left:
            self._round += 1
            self._left = list(asked.tasks)
            random.Random(f"{asked.first_seed}/{asked.worker}/{self._round}").shuffle(self._left)
        self._given += left
        first = asked.first_seed + (self._round * asked.workers + asked.worker) * asked.run
        if first + left > LAST_TRAINING_SEED:
            raise ValueError(f"seed {first} is held out for evaluations; training seeds end at {LAST_TRAINING_SEED}")
        return self._left.pop(), range(first, first + left)


async def _episode(env: MiniWoBEnv, task: str, seed: int, asked: Collecting, policy: ChatModel | None) -> list[Example]:
    if policy is not None:
        taught = await lesson(env, task, seed)
        return await relabel(MiniWoBWorld(env), taught, policy, max_steps=asked.max_steps, deviations=asked.deviations)
    noisy = random.Random(f"noise/{task}/{seed}").random() < 0.5
    noise = asked.noise if noisy else 0.0
    played = await play(env, task, seed, noise=noise, max_steps=asked.max_steps, reuse=task not in FRESH_PAGE)
    return [played.sample()] if played.solved else []


async def lesson(env: MiniWoBEnv, task: str, seed: int) -> TeacherTask:
    """A fresh episode, and its oracle as the teacher."""
    await env.reset(task, seed, reuse=task not in FRESH_PAGE)

    async def ask_oracle() -> Action | None:
        try:
            return await ask(env)
        except OracleFailed:
            return None

    return TeacherTask(task, env.utterance, seed, NANO_WIDGETS, ask_oracle, partial(is_solved, task), SAME_POINT)
