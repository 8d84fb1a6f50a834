"""How many steps a second this machine's pages give: an action, a screenshot and the result are one step."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count, cycle
from typing import Any

from holotron.actions.action import Hover
from holotron.env.browser.chromium import require_chromium
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.environment import SPACE, MiniWoBEnvironment
from holotron.suites.miniwob.pool import MiniWoBPool, miniwob_pool
from holotron.suites.miniwob.tasks import HEIGHT, WIDTH, as_task

POINTS = [SPACE.to_relative(x, y) for y in range(60, HEIGHT, 7) for x in range(5, WIDTH, 11)]


async def measure_steps(
    pages: int = 8, seconds: float = 10.0, task: str = "click-checkboxes", config: MiniWoBConfig | None = None
) -> dict[str, Any]:
    """Steps of a policy that only moves the mouse, then resets by themselves, on all pages at once."""
    config = replace(config or MiniWoBConfig(), pages=pages)
    seeds, points = count(), cycle(POINTS)

    async def reset(env: MiniWoBEnvironment) -> None:
        await env.reset(as_task(task), next(seeds))

    async def step(env: MiniWoBEnvironment) -> None:
        x, y = next(points)
        await env.step(Hover(x=x, y=y))

    async with miniwob_pool(config) as pool:
        await asyncio.gather(*map(reset, pool.envs))  # pages open
        steps, stepping = await _repeat(pool, step, seconds)
        resets, resetting = await _repeat(pool, reset, seconds / 2)
    return {
        "pages": pages,
        "browsers": config.browsers,
        "seconds": round(stepping, 2),
        "steps": steps,
        "steps_per_second": round(steps / stepping, 1),
        "resets_per_second": round(resets / resetting, 1),
        "load": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count() or 1,
        "browser": (config.executable or require_chromium()).name,
    }


async def _repeat(
    pool: MiniWoBPool, work: Callable[[MiniWoBEnvironment], Awaitable[None]], seconds: float
) -> tuple[int, float]:
    """How often the work was done on all pages together, and in which time."""
    started = time.perf_counter()

    async def on(env: MiniWoBEnvironment) -> int:
        done = 0
        while time.perf_counter() < started + seconds:
            await work(env)
            done += 1
        return done

    return sum(await asyncio.gather(*map(on, pool.envs))), time.perf_counter() - started
