"""Makes samples by the thousand: a stream of them, and processes that write them into shards."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path

from holotron.episodes.examples import Example, ExampleError
from holotron.episodes.shards import ShardWriter, read_shard, shard_paths
from holotron.episodes.worker_pool import Share, WorkerDied, share_out
from holotron.suites.screens.rendering import SHEET_COLUMNS, SHEET_ROWS
from holotron.suites.screens.sources import SOURCES, Sources

HELD_OUT_FROM = 10**9  # seeds from here on are for evaluation only
DEFAULT_MIX = {"widgets": 4.0, "miniwob": 3.0, "pages": 3.0, "packages": 1.0}
REPORT_SECONDS = 10.0
ON_SHEET = SHEET_COLUMNS * SHEET_ROWS
BLOCK = 64  # seeds


class GroundError(ValueError):
    """The settings ask for something that cannot be made."""


@dataclass(frozen=True)
class GroundSettings:
    """What to make.

    samples: how many screens, one of each seed from `seed` on; the few that cannot be drawn or show nothing give none.
    asks: samples of one screen, each with questions of its own: drawing costs more than asking.
    mix: weights of the sources. held_out: other seeds, and pages of templates and themes kept from training.
    folders: where the source "packages" looks for HTML; none stands for the usual places. at_once: screens that one
    worker has in the works. varied: pages in views of all sizes.
    """

    out: Path
    samples: int = 1000
    workers: int = 1
    mix: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_MIX))
    seed: int = 0
    held_out: bool = False
    folders: tuple[Path, ...] = ()
    shard_bytes: int = 64 << 20
    at_once: int = 3
    asks: int = 1
    varied: bool = False

    def __post_init__(self) -> None:
        for name in ("samples", "workers", "at_once", "asks"):
            if getattr(self, name) < 1:
                raise GroundError(f"GroundSettings.{name} is {getattr(self, name)}; it must be at least 1")
        if unknown := self.mix.keys() - set(SOURCES):
            raise GroundError(f"there is no source {', '.join(sorted(unknown))}; known are {', '.join(SOURCES)}")
        if not self.mix or min(self.mix.values()) < 0 or sum(self.mix.values()) <= 0:
            raise GroundError("GroundSettings.mix needs a source with a weight above 0, such as widgets=1")
        if self.seed < 0 or self.seed + self.samples > HELD_OUT_FROM:
            raise GroundError(
                f"seeds must lie between 0 and {HELD_OUT_FROM}; seed {self.seed} with {self.samples} samples do not"
            )

    @property
    def first(self) -> int:
        """The first seed."""
        return self.seed + (HELD_OUT_FROM if self.held_out else 0)

    @property
    def weights(self) -> dict[str, float]:
        return {name: weight for name, weight in self.mix.items() if weight > 0}


def source_of(seed: int, mix: Mapping[str, float]) -> str:
    """The source that a seed draws from a mix."""
    names = sorted(name for name in mix if mix[name] > 0)
    return random.Random(f"source/{seed}").choices(names, [mix[name] for name in names])[0]


async def ground_samples(seeds: Iterable[int], settings: GroundSettings) -> AsyncGenerator[Example, None]:
    """The samples of these seeds, in their order, several in the works at once."""
    weights, at_once = settings.weights, settings.at_once
    async with Sources(
        folders=settings.folders,
        held_out=settings.held_out,
        at_once=at_once,
        asks=settings.asks,
        varied=settings.varied,
    ) as sources:
        await sources.prepare(weights)
        drawing = asyncio.Semaphore(at_once)

        async def draw(source: str, part: Sequence[int]) -> list[list[Example]]:
            async with drawing:
                return await (sources.widgets(part) if source == "widgets" else sources.each(source, part))

        async def block(part: Sequence[int]) -> list[Example]:
            """Widgets are drawn together, everything else one by one."""
            works: dict[tuple[int, ...], str] = {}
            small = [seed for seed in part if source_of(seed, weights) == "widgets"]
            for start in range(0, len(small), ON_SHEET):
                works[tuple(small[start : start + ON_SHEET])] = "widgets"
            works |= {(seed,): source_of(seed, weights) for seed in part if seed not in small}
            drawn = await asyncio.gather(*(draw(source, seeds) for seeds, source in works.items()))
            made = dict(zip(chain(*works), chain(*drawn), strict=True))
            return [sample for seed in part for sample in made[seed]]

        waiting: deque[asyncio.Task[list[Example]]] = deque()
        left = iter(seeds)
        try:
            while True:
                # The next block is in the works while this one is handed on.
                while len(waiting) < 2 and (next_seeds := list(islice(left, BLOCK))):
                    waiting.append(asyncio.create_task(block(next_seeds)))
                if not waiting:
                    return
                for sample in await waiting.popleft():
                    yield sample
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


class Tally:
    """Counts what is done, and says so on stderr now and then."""

    def __init__(self, total: int, what: str) -> None:
        self.done = 0
        self._total, self._what = total, what
        self._began = self._told = time.monotonic()

    def add(self, *_: object) -> None:
        self.done += 1
        if time.monotonic() - self._told >= REPORT_SECONDS:
            self.tell()

    def tell(self) -> None:
        self._told = time.monotonic()
        rate = self.done / max(self._told - self._began, 1e-9)
        print(f"{self.done} of {self._total} {self._what}, {rate:.1f}/s", file=sys.stderr, flush=True)


def generate(settings: GroundSettings) -> int:
    """Write all samples into shards under `settings.out` and return how many this run wrote.

    A run that was stopped goes on where it was, given the same settings. Stopping leaves whole shards only.
    """
    tally, workers = Tally(settings.samples * settings.asks, "samples"), settings.workers
    work = share_out(partial(_work, settings), range(workers), None, workers=workers, on_report=tally.add)
    try:
        asyncio.run(work)
    except WorkerDied as error:
        raise GroundError(f"{error}; run it again to go on where it was") from error
    finally:
        tally.tell()
    return tally.done


async def _work(settings: GroundSettings, share: Share[int]) -> None:
    """Write the shards of one worker's number; of two, where another worker has not begun by then."""
    for index in share.take():
        prefix = settings.out / f"ground-{index:03d}of{settings.workers:03d}"
        start = max(settings.first + index, _last_seed(prefix) + settings.workers)
        seeds = range(start, settings.first + settings.samples, settings.workers)
        for left in settings.out.glob(f".{prefix.name}-writing-*"):  # of a run that was killed
            left.unlink()
        if not seeds:
            continue
        with ShardWriter(prefix, settings.shard_bytes) as shards:  # it finishes its shard however this ends
            async for sample in ground_samples(seeds, settings):
                shards.add(sample)
                share.report(1)


def _last_seed(prefix: Path) -> int:
    """The seed of the last sample in a worker's shards; far below all seeds where there are none."""
    try:
        last = shard_paths([prefix])[-1]
    except ExampleError:
        return -HELD_OUT_FROM
    return max((int(sample.about["seed"]) for sample in read_shard(last)), default=-HELD_OUT_FROM)
