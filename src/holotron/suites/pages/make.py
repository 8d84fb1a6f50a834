"""Many tasks played and the solved ones kept, as shards."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holotron.agent.chat import ChatModel
from holotron.env.errors import InfrastructureError
from holotron.episodes.examples import Example
from holotron.episodes.shards import ShardWriter
from holotron.suites.dagger import playing, relabel
from holotron.suites.pages.play import lesson, play_page
from holotron.suites.pages.pool import PagePool
from holotron.suites.pages.task import PageTask, draw_task
from holotron.suites.pages.world import PageWorld

T = TypeVar("T")
PAGES = 3  # per browser: while one is drawn, another is asked
SEEDS = 1 << 40
REPORT_SECONDS = 10.0
# Small, so that a training that reads along soon has some.
SHARD_BYTES = 8 << 20


@dataclass(frozen=True)
class Wanted:
    """One worker's share."""

    prefix: Path
    samples: int
    seed: str
    noise: float
    templates: tuple[str, ...]
    model: str | None = None
    device: str | None = None


async def make_samples(wanted: Wanted, policy: ChatModel | None = None) -> int:
    """Draw tasks of random templates and keep those that were solved; how many steps they have together.

    With a policy it plays, and what the teacher says to that is kept.
    """
    chance, made, steps, began = random.Random(wanted.seed), 0, 0, time.monotonic()
    reported = began
    with ShardWriter(wanted.prefix, SHARD_BYTES) as shards:
        async with PagePool(PAGES) as pool:

            async def keep_on() -> None:
                nonlocal made, steps, reported
                while made < wanted.samples:
                    name, seed = chance.choice(wanted.templates), chance.randrange(SEEDS)
                    for sample in await samples_of(pool, name, seed, wanted.noise, policy):
                        if made < wanted.samples:
                            shards.add(sample)
                            made, steps = made + 1, steps + len(sample.turns)
                    if time.monotonic() - reported > REPORT_SECONDS:
                        reported = time.monotonic()
                        rate = steps / (reported - began)
                        print(f"{wanted.prefix.name}: {made}/{wanted.samples} samples, {rate:.1f} steps/s",
                              file=sys.stderr, flush=True)  # fmt: skip

            await asyncio.gather(*(keep_on() for _ in range(PAGES)))
    return steps


async def samples_of(pool: PagePool, name: str, seed: int, noise: float, policy: ChatModel | None) -> list[Example]:
    """What one task teaches."""

    async def taught(world: PageWorld, task: PageTask) -> list[Example]:
        if policy is not None:
            return await relabel(world, await lesson(world, task), policy)
        played = await play_page(world, task, noise)
        return [played.sample()] if played.reward == 1 else []

    return await on_page(pool, name, seed, taught) or []


async def on_page(pool: PagePool, name: str, seed: int, do: Callable[[PageWorld, PageTask], Awaitable[T]]) -> T | None:
    """Do something with one task on a free page; None, and a line about it, where the browser failed."""
    async with pool.world() as world:
        try:
            return await do(world, draw_task(name, seed))
        except InfrastructureError as error:
            print(f"{name} seed {seed}: {error}", file=sys.stderr)
            return None


def work(wanted: Wanted) -> int:
    """make_samples for a process of its own, with a copy of the policy if there is one."""
    if wanted.model is None:
        return asyncio.run(make_samples(wanted))
    with playing(wanted.model, wanted.device) as policy:
        return asyncio.run(make_samples(wanted, policy))
