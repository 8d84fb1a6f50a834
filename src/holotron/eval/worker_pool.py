"""A small policy at work in several processes.

Each has its own browser and its own copy of the model, which for a small one is cheaper than a server between them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from holotron.agent.baselines import RandomModel
from holotron.agent.chat import ChatModel, ChatOptions
from holotron.agent.in_process import loaded
from holotron.env.workers import end_with_parent

RANDOM = "random"
TELL_SECONDS = 10.0
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Share(Generic[T]):
    """What one process does, and with which policy: a checkpoint folder, a bundled name, or "random"."""

    model: str
    device: str | None
    items: tuple[T, ...]
    at_once: int
    threads: int
    of: int = 1  # how many shares there are
    index: int = 0
    max_tokens: int = 160  # of an answer

    async def each(self, work: Callable[[T], Awaitable[R]]) -> list[R]:
        """What becomes of each item, as many at once as asked for; in the order in which they end."""
        left, done = self._taken(), list[R]()

        async def one() -> None:
            for item in left:
                done.append(await work(item))

        await asyncio.gather(*(one() for _ in range(self.at_once)))
        return done

    def _taken(self) -> Iterator[T]:
        """The items one after another, for several to take from; the first process tells how far it is."""
        told = time.monotonic()
        for done, item in enumerate(self.items):
            if self.index == 0 and time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                print(f"about {done * self.of} of {len(self.items) * self.of}", file=sys.stderr, flush=True)
            yield item

    @contextmanager
    def policy(self) -> Iterator[ChatModel]:
        import torch

        if self.threads:
            torch.set_num_threads(self.threads)
        if self.model == RANDOM:
            yield RandomModel()
            return
        # Recording graphs takes each process longer than the few tokens of an action would save.
        with loaded(
            self.model, self.device, style=ChatOptions(max_tokens=self.max_tokens), cuda_graphs=False
        ) as policy:
            yield policy


def share_out(
    work: Callable[[Share[T]], list[R]],
    items: Sequence[T],
    model: str,
    *,
    device: str | None = None,
    workers: int = 1,
    at_once: int = 8,
) -> list[R]:
    """All that the processes found, in no particular order. `work` is a function of a module: processes import it."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    shares = [
        Share(model, device, tuple(items[index::workers]), at_once, threads, workers, index) for index in range(workers)
    ]
    if workers == 1:
        return work(shares[0])
    with multiprocessing.get_context("spawn").Pool(workers, end_with_parent) as processes:
        return [result for part in processes.map(work, shares, chunksize=1) for result in part]
