"""Many tasks played and the solved ones kept, as shards."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from holotron.data.pages.play import PlayedPage, play_page
from holotron.data.pages.pool import PagePool
from holotron.data.pages.task import draw_task
from holotron.data.samples import ShardWriter
from holotron.env.errors import InfrastructureError

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


async def make_samples(wanted: Wanted) -> int:
    """Draw tasks of random templates and keep those that were solved; how many steps they have together."""
    chance, made, steps, began = random.Random(wanted.seed), 0, 0, time.monotonic()
    reported = began
    with ShardWriter(wanted.prefix, SHARD_BYTES) as shards:
        async with PagePool(PAGES) as pool:

            async def keep_on() -> None:
                nonlocal made, steps, reported
                while made < wanted.samples:
                    played = await play_one(
                        pool, chance.choice(wanted.templates), chance.randrange(SEEDS), wanted.noise
                    )
                    if played is None or played.reward != 1 or made >= wanted.samples:
                        continue
                    shards.add(played.sample())
                    made, steps = made + 1, steps + len(played.turns)
                    if time.monotonic() - reported > REPORT_SECONDS:
                        reported = time.monotonic()
                        rate = steps / (reported - began)
                        print(f"{wanted.prefix.name}: {made}/{wanted.samples} samples, {rate:.1f} steps/s",
                              file=sys.stderr, flush=True)  # fmt: skip

            await asyncio.gather(*(keep_on() for _ in range(PAGES)))
    return steps


async def play_one(pool: PagePool, name: str, seed: int, noise: float) -> PlayedPage | None:
    """One task on a free page; None, and a line about it, where the browser failed."""
    async with pool.world() as world:
        try:
            return await play_page(world, draw_task(name, seed), noise)
        except InfrastructureError as error:
            print(f"{name} seed {seed}: {error}", file=sys.stderr)
            return None


def work(wanted: Wanted) -> int:
    """make_samples for a process of its own."""
    return asyncio.run(make_samples(wanted))
