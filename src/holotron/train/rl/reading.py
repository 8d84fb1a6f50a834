"""Episodes on their way into batches, read and packed in processes of their own.

In the trainer's process they would take the interpreter from the engine's thread, which plays on meanwhile.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, Self, TypeVar

import torch
from torch import Tensor

from holotron.env.workers import end_with_parent, with_torch
from holotron.train.batches import Packer
from holotron.train.rl.config import ObjectiveConfig
from holotron.train.rl.groups import RolloutGroup
from holotron.train.rl.played import PlayedReader, PlayedSequence
from holotron.train.rl.rollout_batch import RolloutBatch, WeighedSequence, build_batch, bunched, packing

log = logging.getLogger(__name__)
PROCESSES = max(2, (os.cpu_count() or 1) // 4)
AHEAD = 8  # batches packed while others are learned from
NICENESS = 1  # browsers wait for what learns rather than it for them, and both for the engine's thread
Episodes = list[list[PlayedSequence]]
T = TypeVar("T")


class GroupReader:
    """Reads the episodes of groups and packs them; a context manager. processes: 0 does it all here, when it is asked.

    Where its processes die, what they had in hand and all that follows is done here.
    """

    def __init__(self, reader: PlayedReader, packer: Packer, config: ObjectiveConfig, processes: int) -> None:
        self._reader, self._packer, self._config = reader, packer, config
        self._begun: dict[int, tuple[list[str], Future[bytes]]] = {}
        self._pool: ProcessPoolExecutor | None = None
        if processes:
            self._pool = ProcessPoolExecutor(processes, with_torch(), _begin, (reader, packer, config))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def begin(self, group: RolloutGroup) -> None:
        """Have a group read that `read` will ask for; once, unless it has other episodes than before."""
        episodes = _episodes(group)
        if self._begun.get(group.number, ([],))[0] != episodes and (job := self._submit(_read, episodes)) is not None:
            self._begun[group.number] = episodes, job

    def drop(self, number: int) -> None:
        """Forget a group that `read` will not ask for."""
        self._begun.pop(number, None)

    def read(self, group: RolloutGroup) -> Episodes:
        """The sequences of each of its trajectories; ExampleError as in PlayedReader."""
        episodes = _episodes(group)
        begun, job = self._begun.pop(group.number, ([], None))
        return self._result(job if begun == episodes else None, lambda: self._reader.read(*episodes))

    def pack(self, sequences: Sequence[WeighedSequence], episodes: float) -> Iterator[RolloutBatch]:
        """Batches in the order of the sequences, some of them packed before they are asked for.

        episodes: that one update learns from, these among them.
        """
        if self._pool is None:
            yield from packing(self._packer, sequences, self._config, episodes)
            return
        begun = deque[tuple[list[WeighedSequence], Future[bytes] | None]]()
        left = iter(bunched(self._packer, sequences))
        while True:
            begun.extend((bunch, self._submit(_build, bunch, episodes)) for bunch in islice(left, AHEAD - len(begun)))
            if not begun:
                return
            members, job = begun.popleft()
            yield self._result(job, lambda m=members: build_batch(self._packer, m, episodes, self._config))  # type: ignore[misc]

    def _submit(self, work: Callable[..., bytes], *arguments: Any) -> Future[bytes] | None:
        try:
            return None if self._pool is None else self._pool.submit(work, *arguments)
        except BrokenProcessPool:
            return None

    def _result(self, job: Future[bytes] | None, here: Callable[[], T]) -> T:
        """What a process made of it, or what is made here where there is none."""
        if job is None:
            return here()
        try:
            found: T = pickle.loads(job.result())
            return found
        except BrokenProcessPool:
            log.warning("a process that reads episodes died; they are read in the trainer's own from now on")
            return here()


def _episodes(group: RolloutGroup) -> list[str]:
    return [trajectory.episode for trajectory in group.trajectories]


# ---- in the processes ----

_held: list[tuple[PlayedReader, Packer, ObjectiveConfig]] = []


def _begin(reader: PlayedReader, packer: Packer, config: ObjectiveConfig) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the trainer
    end_with_parent()
    os.nice(NICENESS)
    torch.set_num_threads(1)
    _held.append((reader, packer, config))


def _read(episodes: Sequence[str]) -> bytes:
    return _dumped(_held[0][0].read(*episodes))


def _build(members: list[WeighedSequence], episodes: float) -> bytes:
    _, packer, config = _held[0]
    return _dumped(build_batch(packer, members, episodes, config))


class _Pickler(pickle.Pickler):
    """Tensors by their values: between processes PyTorch would leave them in shared memory, of which little may be."""

    def reducer_override(self, value: Any) -> Any:
        return (torch.from_numpy, (value.numpy(),)) if isinstance(value, Tensor) else NotImplemented


def _dumped(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getvalue()
