"""Batches in an order that a seed decides, made by several processes, which can be left and taken up again anywhere.

A shard or an episode belongs to one stream. There are as many streams for each worker as batches in a step, whatever
the number of ranks that share these: each batch comes with the cursor of its stream behind it, and with the cursors
of all of them a run goes on with exactly the batches it would have had, also with other ranks.
"""

from __future__ import annotations

import logging
import random
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from holotron.agent.policy_format import NANO, PolicyFormat, find_format
from holotron.episodes.examples import ExampleError
from holotron.episodes.shards import read_shard, shard_paths
from holotron.model.errors import ModelError
from holotron.train.augment import Augment
from holotron.train.batches import Bunch, Packer, TrainingBatch
from holotron.train.coordinate_jitter import CoordinateJitter
from holotron.train.cutting import cut
from holotron.train.recipe import DataSource
from holotron.train.sequences import Sequence, SequenceWriter

if TYPE_CHECKING:
    from holotron.episodes.views import View

log = logging.getLogger(__name__)

MOST_LEFT_OUT = 1000
MOST_ASIDE = 8

Place = tuple[int, int]  # a source and a position in its order


@dataclass(frozen=True)
class Cursor:
    """How often one stream has drawn, how often from each source, and what of that waits for the next batch."""

    draws: int
    positions: tuple[int, ...]
    aside: tuple[Place, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """A batch, the stream it is from, where that stands after it, and what kinds of examples are in it."""

    batch: TrainingBatch
    stream: int
    cursor: Cursor
    kinds: tuple[str, ...]

    def pin_memory(self) -> Drawn:
        """What DataLoader's thread for that calls."""
        return replace(self, batch=self.batch.pin())


class SourceShare:
    """One stream's share of a source, drawn in a new order each time round.

    Tar shards are held in memory as written sequences; those that follow each other over the same picture stay
    together, up to `shared` of them. Of an episode store the share holds where examples are, and reads what is drawn.
    Of an episode that `fits` into no batch, one of its pieces is drawn. What `augment` makes too large stays as it was.
    """

    def __init__(
        self,
        source: DataSource,
        writer: SequenceWriter,
        stream: int,
        streams: int,
        seed: int | str,
        shared: int = 1,
        folder: Path = Path(),
        own_format: PolicyFormat = NANO,
        fits: Callable[..., bool] = lambda *_: True,
        augment: Augment | None = None,
    ) -> None:
        self._seed = f"{seed}/{stream}"
        self._augment, self._fits = augment, fits
        self._read: Callable[[int, int], Bunch]
        if source.store:
            from holotron.episodes.views import View  # needs pydantic, which training on tar shards does without

            form = find_format(source.format) if source.format else own_format
            view = View([folder / source.store], source, policy_format=form, part=stream, parts=streams)
            self._read, self._weights = partial(self._read_example, view, writer, form), view.weights
        else:
            bunches = _tar_bunches(folder / source.shards, writer, stream, streams, shared)
            self._read, self._weights = lambda index, _: bunches[index], [1.0] * len(bunches)
        if not any(self._weights):
            share = f" for stream {stream} of {streams}; use fewer workers or batches" if streams > 1 else ""
            raise ExampleError(f"there is nothing to learn at {folder / source.path}{share}")
        self._round, self._start = 0, 0  # and the position at which the round began
        self._order = self._shuffled()

    def draw(self, position: int) -> Bunch:
        """The examples at a position of the endless order, none where they are damaged. Never go back."""
        while position >= self._start + len(self._order):
            self._start += len(self._order)
            self._round += 1
            self._order = self._shuffled()
        bunch = self._read(self._order[position - self._start], position)
        if self._augment is None or not bunch:
            return bunch
        shown = self._augment.apply(bunch, f"{self._seed}/augment/{position}")
        return shown if self._fits(*shown) else bunch

    def _read_example(self, view: View, writer: SequenceWriter, form: PolicyFormat, index: int, position: int) -> Bunch:
        try:
            example = view[index]
            written = writer.write(example)
            if self._fits(written):
                return (written,)
            pieces = cut(example, form, writer, self._fits)
        except ExampleError as error:
            log.warning("an example is left out: %s", error)
            return ()
        if not pieces:
            what = example.about.get("episode", example.kind)
            tokens, patches = len(written.token_ids), sum(picture.patches for picture in written.pictures)
            shown = f"{tokens} tokens, {int(written.learn.sum())} of them learned, and {patches} patches"
            log.warning("%s is left out: its %d steps have %s, and not one fits", what, len(example.turns), shown)
            return ()
        return (random.Random(f"{self._seed}/piece/{position}").choice(pieces),)

    def _shuffled(self) -> list[int]:
        """One round: each as often as its weight says, the fraction by chance."""
        chance = random.Random(f"{self._seed}/{self._round + 1}")
        order = [
            index
            for index, weight in enumerate(self._weights)
            for _ in range(int(weight) + (weight % 1 > 0 and chance.random() < weight % 1))
        ]
        chance.shuffle(order)
        return order


def _tar_bunches(path: Path, writer: SequenceWriter, stream: int, streams: int, shared: int) -> list[Bunch]:
    """A stream's share of the shards, or of each shard where there are fewer than streams."""
    paths = shard_paths([path])
    few = len(paths) < streams
    return [
        bunch
        for number, shard in enumerate(paths)
        if few or number % streams == stream
        for index, bunch in enumerate(_bunched(map(writer.write, read_shard(shard)), shared))
        if not few or index % streams == stream
    ]


def _bunched(sequences: Iterable[Sequence], shared: int) -> Iterator[Bunch]:
    bunch: Bunch = ()
    for sequence in sequences:
        if bunch and len(bunch) < shared and _same_picture(bunch[0], sequence):
            bunch += (replace(sequence, pictures=bunch[0].pictures),)
            continue
        if bunch:
            yield bunch
        bunch = (sequence,)
    if bunch:
        yield bunch


def _same_picture(one: Sequence, other: Sequence) -> bool:
    return len(one.pictures) == len(other.pictures) == 1 and one.pictures[0].png == other.pictures[0].png


@dataclass(eq=False)
class BatchStream(IterableDataset[Any]):
    """One rank's part of the `batches` of each step, endlessly, made by its own `workers`, who take steps in turn.

    `cursors` are those a run has reached, of all streams; `turn` is the worker that is next.
    """

    sources: ListOf[DataSource]
    writer: SequenceWriter
    packer: Packer
    seed: int
    workers: int = 1
    batches: int = 1
    cursors: Mapping[int, Cursor] = field(default_factory=dict)
    turn: int = 0
    rank: int = 0
    ranks: int = 1
    jitter: CoordinateJitter | None = None
    augment: Augment | None = None
    folder: Path = Path()
    own_format: PolicyFormat = NANO

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is not None:
            torch.set_num_threads(1)
        worker = (self.turn + (info.id if info is not None else 0)) % self.workers
        own = range(self.rank, self.batches, self.ranks)
        try:
            yield from zip(*(self._drawn(worker * self.batches + batch) for batch in own), strict=True)
        except (ExampleError, ModelError) as error:
            if info is None:
                raise
            yield error  # raised by `load_batches`: DataLoader would make its traceback a part of the message

    def _drawn(self, stream: int) -> Iterator[Drawn]:
        streams, shared = self.workers * self.batches, self.packer.budget.shared
        shares = [
            SourceShare(
                source,
                self.writer,
                stream,
                streams,
                f"{self.seed}/{number}",  # not its path: data that was moved is drawn in the same order
                shared,
                self.folder,
                self.own_format,
                self.packer.fits,
                self.augment,
            )
            for number, source in enumerate(self.sources)
        ]
        start = self.cursors.get(stream, Cursor(0, (0,) * len(shares)))
        weights = [source.weight for source in self.sources]
        draws, positions = start.draws, list(start.positions)
        drawn = {place: shares[place[0]].draw(place[1]) for place in sorted(start.aside)}  # never back over a position
        waiting = [(place, drawn[place]) for place in start.aside]
        while True:
            room, members, aside, left_out = self.packer.room(), list[Sequence](), list[tuple[Place, Bunch]](), 0
            # What does not fit any more waits for the next batch, and smaller things are looked for meanwhile.
            while len(aside) < MOST_ASIDE and left_out < MOST_LEFT_OUT:
                if waiting:
                    place, bunch = waiting.pop(0)
                else:
                    [chosen] = random.Random(f"{self.seed}/{stream}/{draws}").choices(range(len(shares)), weights)
                    place = chosen, positions[chosen]
                    bunch = shares[chosen].draw(positions[chosen])
                    draws += 1
                    positions[chosen] += 1
                if not bunch:
                    left_out += 1
                elif room.takes(bunch):
                    room.take(bunch)
                    members += bunch
                elif self.packer.fits(*bunch):
                    aside.append((place, bunch))
                else:
                    left_out += 1
            if not members:
                if not bunch:
                    raise ExampleError(f"none of {left_out} examples in a row can be used; the log says why")
                tokens, patches, learned, *_ = room.needs(bunch)
                raise ExampleError(
                    f"none of {left_out} examples in a row fits into a batch, the last being of kind {bunch[0].kind}, "
                    f"{tokens} tokens, {learned} of them learned, and {patches} patches; "
                    "make the recipe's [batch] larger"
                )
            waiting = aside
            kinds = tuple(member.kind for member in members)
            cursor = Cursor(draws, tuple(positions), tuple(place for place, _ in waiting))
            batch = self.packer.build(members)
            if self.jitter is not None:
                batch = self.jitter.apply(batch, [self.seed, stream, draws])
            yield Drawn(batch, stream, cursor, kinds)


def load_batches(stream: BatchStream, workers: int) -> Iterator[tuple[Drawn, ...]]:
    """The stream's batches, made by that many processes, or here if by none."""
    if workers == 0:
        return iter(stream)
    # A thread of its own brings batches into memory that a GPU can fetch from, while the step before is computed.
    pinned = torch.cuda.is_available()
    loader = DataLoader(
        stream, batch_size=None, num_workers=workers, prefetch_factor=4, pin_memory=pinned, worker_init_fn=_outlive
    )
    return _raising(loader)


def _outlive(worker: int) -> None:
    """A scheduler that stops a run signals all of its processes: the state is kept first. A second signal ends this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def _raising(made: Iterable[tuple[Drawn, ...] | ExampleError | ModelError]) -> Iterator[tuple[Drawn, ...]]:
    for step in made:
        if isinstance(step, Exception):
            raise step
        yield step
