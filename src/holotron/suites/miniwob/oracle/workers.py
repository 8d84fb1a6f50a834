"""Collecting in several processes, each with a browser and, where a policy plays, a copy of it."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from holotron.env.workers import end_with_parent
from holotron.suites.dagger import playing
from holotron.suites.miniwob.oracle.collect import Collecting, collect


def collect_all(asked: Collecting, model: str | None = None, device: str | None = None) -> Counter[str]:
    """Play with as many processes as asked for; the counts of all."""
    parts = [(replace(asked, worker=worker), model, device) for worker in range(asked.workers)]
    if asked.workers == 1:
        return _collect(*parts[0])
    with multiprocessing.get_context("spawn").Pool(asked.workers, end_with_parent) as processes:
        return sum(processes.starmap(_collect, parts, chunksize=1), Counter())


def _collect(asked: Collecting, model: str | None, device: str | None) -> Counter[str]:
    """One worker's part."""
    if model is None:
        return asyncio.run(collect(asked, on_episode=_teller(asked)))
    with playing(model, device) as policy:
        return asyncio.run(collect(asked, policy, _teller(asked)))


def _teller(asked: Collecting) -> Callable[[Counter[str]], None]:
    """A line now and then from the first worker: the others are as far."""
    began, told = time.monotonic(), [time.monotonic()]

    def tell(counts: Counter[str]) -> None:
        now = time.monotonic()
        if asked.worker == 0 and now - told[0] > 10:
            told[0] = now
            rate = counts["steps"] * asked.workers / (now - began)
            done = counts["episodes"] * asked.workers
            print(f"about {done} episodes, {rate:.0f} steps/s", file=sys.stderr, flush=True)

    return tell
