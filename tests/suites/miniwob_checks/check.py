"""Does every task load, look the same twice, and end the way the package says? Answers for this machine."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from holotron.agent.baselines import random_action
from holotron.env.browser.chromium import find_chromium
from holotron.suites.miniwob.environment import MiniWoBConfig, MiniWoBEnvironment, MiniWoBResult
from holotron.suites.miniwob.pool import miniwob_pool
from holotron.suites.miniwob.tasks import all_tasks, as_task

T = TypeVar("T")


def require_chromium() -> Path:
    path, how = find_chromium()
    assert path is not None, f"no Chromium: {how}"
    return path


@dataclass(frozen=True)
class RandomEnding:
    """How an episode of random actions ended."""

    task: str
    steps: int
    raw_reward: float
    reason: str

    @property
    def sane(self) -> bool:
        return -1 <= self.raw_reward <= 1


async def first_screens(
    tasks: Sequence[str], seeds: Sequence[int], config: MiniWoBConfig
) -> dict[tuple[str, int], str]:
    """Hashes of the first screenshots, in browsers started for this."""

    async def look(env: MiniWoBEnvironment, task: str, seed: int) -> str:
        return hashlib.sha256((await env.reset(as_task(task), seed)).image).hexdigest()

    return await _spread(tasks, seeds, look, config)


async def random_endings(tasks: Sequence[str], seed: int, config: MiniWoBConfig) -> list[RandomEnding]:
    """Play each task at random until it ends; `config.time_limit` must make sure that it does."""

    async def play(env: MiniWoBEnvironment, task: str, seed: int) -> RandomEnding:
        draw, result, steps = random.Random(seed), MiniWoBResult(done=False), 0
        await env.reset(as_task(task), seed)
        while not result.done:
            _, result = await env.step(random_action(draw))
            steps += 1
        return RandomEnding(task, steps, result.raw_reward, result.reason)

    return list((await _spread(tasks, [seed], play, config)).values())


async def check_all(
    seeds: Sequence[int] = (0, 1), pages: int = 4, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Compare first screenshots of every task in two separate browser runs, then play each at random."""
    names, started = list(all_tasks()), time.perf_counter()
    progress(f"first run: {len(names)} tasks, {len(seeds)} seeds")
    first = await first_screens(names, seeds, MiniWoBConfig(pages=pages))
    progress("second run, other order, other number of pages")
    second = await first_screens(names[::-1], seeds, MiniWoBConfig(pages=max(1, pages - 1)))
    progress("random actions until each task ends")
    endings = await random_endings(names, 0, MiniWoBConfig(pages=pages, time_limit=2.0))
    return {
        "arial": arial(),
        "tasks": len(names),
        "screenshots": len(first),
        "different": sorted(
            f"{task} seed {seed}" for (task, seed), seen in first.items() if second[task, seed] != seen
        ),
        "seeds_alike": sorted({task for task in names if len({first[task, seed] for seed in seeds}) < len(seeds)}),
        "ended": sum(ending.sane for ending in endings),
        "not_sane": [asdict(ending) for ending in endings if not ending.sane],
        "timed_out": sum(ending.reason == "timed out" for ending in endings),
        "raw_rewards": sorted({round(ending.raw_reward, 3) for ending in endings}),
        "seconds": round(time.perf_counter() - started, 1),
    }


def arial() -> str:
    """The font this machine draws Arial with, which every page asks for: another font is another set of pixels."""
    if (program := shutil.which("fc-match")) is None:
        return "unknown"
    return subprocess.run([program, "Arial"], capture_output=True, text=True, check=False).stdout.strip()


async def _spread(
    tasks: Sequence[str],
    seeds: Sequence[int],
    work: Callable[[MiniWoBEnvironment, str, int], Awaitable[T]],
    config: MiniWoBConfig,
) -> dict[tuple[str, int], T]:
    """What the work gives for each task and seed, done by the pages of one pool."""
    jobs = [(task, seed) for task in tasks for seed in seeds]
    async with miniwob_pool(config) as pool:

        async def one(task: str, seed: int) -> T:
            async with pool.lease() as env:
                return await work(env, task, seed)

        return dict(zip(jobs, await asyncio.gather(*(one(*job) for job in jobs)), strict=True))
