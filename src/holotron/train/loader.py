"""Batches in an order that a seed decides, made by several processes, which can be left and taken up again anywhere.

A shard belongs to one worker, and batches are taken from the workers in turn. Each batch comes with the cursor of its
worker behind it: with the cursors of all of them a run goes on with exactly the batches it would have had. Several
ranks have workers of their own, numbered so that together they take from all of them in turn.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterator
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from holotron.episodes.examples import ExampleError
from holotron.episodes.shards import read_shard, shard_paths
from holotron.train.batches import Batch, Bunch, Packer
from holotron.train.coordinate_jitter import CoordinateJitter
from holotron.train.recipe import Source
from holotron.train.sequences import Sequence, SequenceWriter

MOST_LEFT_OUT = 1000
MOST_ASIDE = 8
# Of a growing source: bunches that a worker begins with, and how it reads on.
ENOUGH_TO_START = 512
READ_PER_DRAW = 2
LOOK_AGAIN_SECONDS = 1.0

Place = tuple[int, int]  # a source and a position in its order


@dataclass(frozen=True)
class Cursor:
    """How often one worker has drawn, how often from each source, and what of that waits for the next batch."""

    draws: int
    positions: tuple[int, ...]
    aside: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """A batch, the worker it is from, where that worker stands after it, and what kinds of samples are in it."""

    batch: Batch
    worker: int
    cursor: Cursor
    kinds: tuple[str, ...]

    def pin_memory(self) -> Drawn:
        """What DataLoader's thread for that calls."""
        return replace(self, batch=self.batch.pin())


class SourceShare:
    """One worker's share of a source: held in memory as written sequences, drawn in a new order each time round.

    Samples that follow each other and are over the same picture stay together, up to `shared` of them.

    What a growing source has got meanwhile is read a little with every draw and takes part from the next round on:
    reading it all at once would keep every other worker waiting.
    """

    def __init__(
        self, source: Source, writer: SequenceWriter, worker: int, workers: int, seed: int, shared: int = 1
    ) -> None:
        self._source, self._writer, self._shared = source, writer, shared
        self._worker, self._workers = worker, workers
        self._seed = f"{seed}/{source.path}/{worker}"
        self._starts = [0]  # position at which each round began
        self._order: list[int] = []
        self._coming = self._read_on()
        self._look_again = 0.0
        self._bunches = self._take(ENOUGH_TO_START if source.growing else None)
        self._newcomers: list[Bunch] = []
        if not self._bunches:
            raise ExampleError(f"there are no samples at {source.path}")

    def draw(self, position: int) -> Bunch:
        """The samples at a position of the endless order. Positions may be skipped, not gone back over."""
        if self._source.growing and time.monotonic() >= self._look_again:
            self._newcomers += self._take(READ_PER_DRAW)
        while position >= self._starts[-1] + len(self._order):
            if self._order:
                self._starts.append(self._starts[-1] + len(self._order))
                self._bunches += self._newcomers
                self._newcomers = []
            self._order = list(range(len(self._bunches)))
            random.Random(f"{self._seed}/{len(self._starts)}").shuffle(self._order)
        return self._bunches[self._order[position - self._starts[-1]]]

    def _take(self, most: int | None) -> list[Bunch]:
        """The next bunches, all there are or at most so many."""
        taken: list[Bunch] = []
        while most is None or len(taken) < most:
            bunch = next(self._coming)
            if bunch is None:
                self._look_again = time.monotonic() + LOOK_AGAIN_SECONDS
                break
            taken.append(bunch)
        return taken

    def _read_on(self) -> Iterator[Bunch | None]:
        """Without end: what is in all shards that are this worker's, and None whenever there is no more yet."""
        read: set[Path] = set()
        while True:
            paths = [path for path in shard_paths([Path(self._source.path)]) if path not in read]
            first = not read
            few = first and len(paths) < self._workers
            for number, path in enumerate(paths):
                read.add(path)
                turn = number if first else zlib.crc32(path.name.encode())
                if few or turn % self._workers == self._worker:
                    for index, bunch in enumerate(self._bunched(path)):
                        if not few or index % self._workers == self._worker:
                            yield bunch
            yield None

    def _bunched(self, path: Path) -> Iterator[Bunch]:
        bunch: Bunch = ()
        for sequence in map(self._writer.write, read_shard(path)):
            if bunch and len(bunch) < self._shared and _same_picture(bunch[0], sequence):
                bunch += (replace(sequence, pictures=bunch[0].pictures),)
                continue
            if bunch:
                yield bunch
            bunch = (sequence,)
        if bunch:
            yield bunch


def _same_picture(one: Sequence, other: Sequence) -> bool:
    return len(one.pictures) == len(other.pictures) == 1 and one.pictures[0].png == other.pictures[0].png


class BatchStream(IterableDataset[Drawn]):
    """Endless batches of one rank, made by its own `workers`.

    `cursors` are those a run has reached, of all workers of all ranks; `turn` is the own worker that is next.
    """

    def __init__(
        self,
        sources: ListOf[Source],
        writer: SequenceWriter,
        packer: Packer,
        seed: int,
        workers: int = 1,
        cursors: dict[int, Cursor] | None = None,
        turn: int = 0,
        rank: int = 0,
        ranks: int = 1,
        tremor: CoordinateJitter | None = None,
    ) -> None:
        super().__init__()
        self._sources, self._writer, self._packer = tuple(sources), writer, packer
        self._seed, self._workers, self._turn = seed, workers, turn
        self._cursors = cursors or {}
        self._rank, self._ranks = rank, ranks
        self._tremor = tremor

    def __iter__(self) -> Iterator[Drawn]:
        info = get_worker_info()
        if info is not None:
            torch.set_num_threads(1)
        own = (self._turn + (info.id if info is not None else 0)) % self._workers
        worker, workers = own * self._ranks + self._rank, self._workers * self._ranks
        shared = self._packer.budget.shared
        shares = [SourceShare(source, self._writer, worker, workers, self._seed, shared) for source in self._sources]
        start = self._cursors.get(worker, Cursor(0, (0,) * len(shares)))
        yield from self._drawn(worker, shares, start)

    def _drawn(self, worker: int, shares: list[SourceShare], start: Cursor) -> Iterator[Drawn]:
        weights = [source.weight for source in self._sources]
        draws, positions = start.draws, list(start.positions)
        drawn = {place: shares[place[0]].draw(place[1]) for place in sorted(start.aside)}  # never back over a position
        waiting = [(place, drawn[place]) for place in start.aside]
        while True:
            room, members, aside, left_out = self._packer.room(), list[Sequence](), list[tuple[Place, Bunch]](), 0
            # What does not fit any more waits for the next batch, and smaller things are looked for meanwhile.
            while len(aside) < MOST_ASIDE and left_out < MOST_LEFT_OUT:
                if waiting:
                    place, bunch = waiting.pop(0)
                else:
                    [chosen] = random.Random(f"{self._seed}/{worker}/{draws}").choices(range(len(shares)), weights)
                    place = chosen, positions[chosen]
                    bunch = shares[chosen].draw(positions[chosen])
                    draws += 1
                    positions[chosen] += 1
                if room.takes(bunch):
                    room.take(bunch)
                    members += bunch
                elif self._packer.fits(*bunch):
                    aside.append((place, bunch))
                else:
                    left_out += 1
            if not members:
                tokens, patches, learned, *_ = room.needs(bunch)
                raise ExampleError(
                    f"none of {left_out} samples in a row fits into a batch, the last being of kind {bunch[0].kind}, "
                    f"{tokens} tokens, {learned} of them learned, and {patches} patches; "
                    "make the recipe's [batch] larger"
                )
            waiting = aside
            kinds = tuple(member.kind for member in members)
            cursor = Cursor(draws, tuple(positions), tuple(place for place, _ in waiting))
            batch = self._packer.build(members)
            if self._tremor is not None:
                batch = self._tremor.shake(batch, [self._seed, worker, draws])
            yield Drawn(batch, worker, cursor, kinds)


def load_batches(stream: BatchStream, workers: int) -> Iterator[Drawn]:
    """The stream's batches, made by that many processes, or here if by none."""
    if workers == 0:
        return iter(stream)
    # A thread of its own brings batches into memory that a GPU can fetch from, while the step before is computed.
    pinned = torch.cuda.is_available()
    loader = DataLoader(stream, batch_size=None, num_workers=workers, prefetch_factor=4, pin_memory=pinned)
    return iter(loader)
