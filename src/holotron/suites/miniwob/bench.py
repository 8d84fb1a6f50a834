"""How many steps a second this machine's pages give: an action, a screenshot and the result are one step."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import asdict, dataclass, replace
from itertools import cycle

from holotron.actions.action import Hover
from holotron.env.browser.chromium import require_chromium
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.environment import SPACE, MiniWoBEnvironment
from holotron.suites.miniwob.pool import miniwob_pool
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH, as_task


@dataclass(frozen=True)
class StepRate:
    pages: int
    browsers: int
    seconds: float
    steps: int
    steps_per_second: float
    resets_per_second: float
    load: float
    cores: int
    browser: str

    def to_json(self) -> dict[str, object]:
        return asdict(self)


async def measure_steps(
    pages: int = 8, seconds: float = 10.0, task: str = "click-checkboxes", config: MiniWoBConfig | None = None
) -> StepRate:
    """Steps of a policy that only moves the mouse, then resets by themselves, on all pages at once."""
    asked, config = as_task(task), replace(config or MiniWoBConfig(), pages=pages)
    async with miniwob_pool(config) as pool:
        seeds = iter(range(10**9))

        async def reset_until(env: MiniWoBEnvironment, end: float) -> int:
            count = 0
            while time.perf_counter() < end:
                await env.reset(asked, next(seeds))
                count += 1
            return count

        async def step_until(env: MiniWoBEnvironment, end: float) -> int:
            count = 0
            points = [SPACE.to_relative(x, y) for y in range(60, HEIGHT, 7) for x in range(5, WIDTH, 11)]
            for x, y in cycle(points):
                if time.perf_counter() >= end:
                    break
                await env.step(Hover(x=x, y=y))
                count += 1
            return count

        await asyncio.gather(*(env.reset(asked, seed) for seed, env in enumerate(pool.envs)))  # pages open
        started = time.perf_counter()
        steps = sum(await asyncio.gather(*(step_until(env, started + seconds) for env in pool.envs)))
        stepped = time.perf_counter() - started
        started = time.perf_counter()
        resets = sum(await asyncio.gather(*(reset_until(env, started + seconds / 2) for env in pool.envs)))
        resetting = time.perf_counter() - started
    return StepRate(
        pages=pages,
        browsers=config.browsers,
        seconds=round(stepped, 2),
        steps=steps,
        steps_per_second=round(steps / stepped, 1),
        resets_per_second=round(resets / resetting, 1),
        load=round(os.getloadavg()[0], 2),
        cores=os.cpu_count() or 1,
        browser=str((config.executable or require_chromium()).name),
    )
