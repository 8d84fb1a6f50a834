"""Does every task load, look the same twice, and end the way the package says? Answers for this machine."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from holotron.agent.baselines import random_action
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.environment import MiniWoBEnvironment
from holotron.suites.miniwob.pool import miniwob_pool
from holotron.suites.miniwob.protocols import MiniWoBResult
from holotron.suites.miniwob.tasks import all_tasks, as_task

Progress = Callable[[str], None]


@dataclass(frozen=True)
class RandomEnding:
    """How an episode of random actions ended."""

    task: str
    seed: int
    steps: int
    done: bool
    raw_reward: float
    reason: str

    @property
    def sane(self) -> bool:
        return self.done and -1 <= self.raw_reward <= 1


async def first_screens(
    tasks: Sequence[str], seeds: Sequence[int], config: MiniWoBConfig
) -> dict[tuple[str, int], str]:
    """Hashes of the first screenshots, in browsers started for this."""

    async def look(env: MiniWoBEnvironment, job: tuple[str, int]) -> str:
        task, seed = job
        return hashlib.sha256((await env.reset(as_task(task), seed)).image).hexdigest()

    jobs = [(task, seed) for task in tasks for seed in seeds]
    return dict(zip(jobs, await _spread(jobs, look, config), strict=True))


async def random_endings(tasks: Sequence[str], seed: int, config: MiniWoBConfig) -> list[RandomEnding]:
    """Play each task at random until it ends; `config.time_limit` must make sure that it does."""
    if config.time_limit is None:
        config = replace(config, time_limit="task")

    async def play(env: MiniWoBEnvironment, job: tuple[str, int]) -> RandomEnding:
        task, seed = job
        draw, result, steps = random.Random(seed), MiniWoBResult(done=False), 0
        await env.reset(as_task(task), seed)
        while not result.done:
            _, result = await env.step(random_action(draw))
            steps += 1
        return RandomEnding(task, seed, steps, result.done, result.raw_reward, result.reason)

    return await _spread([(task, seed) for task in tasks], play, config)


async def check_all(
    tasks: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1),
    pages: int = 4,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Compare first screenshots of two separate browser runs, then play at random. All tasks unless told otherwise."""
    names = list(tasks or all_tasks())
    started = time.perf_counter()
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
    jobs: Sequence[tuple[str, int]], work: Callable[[MiniWoBEnvironment, tuple[str, int]], Any], config: MiniWoBConfig
) -> list[Any]:
    """The work done for each job by the pages of one pool, answers in the order of the jobs."""

    async with miniwob_pool(config) as pool:

        async def one(job: tuple[str, int]) -> Any:
            async with pool.lease() as env:
                return await work(env, job)

        return await asyncio.gather(*map(one, jobs))
