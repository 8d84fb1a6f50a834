"""Oracles tried out, for whoever writes one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.oracle.play import Played, play
from holotron.suites.miniwob.pool import miniwob_pool


async def try_oracles(tasks: Sequence[str], episodes: int, noise: float, save: Path | None) -> None:
    """Tell of each task how many episodes were solved, and what was done in those that were not."""
    async with miniwob_pool(MiniWoBConfig(pages=4)) as pool:
        for task in tasks:
            began = time.monotonic()

            async def one(seed: int, task: str = task) -> Played:
                async with pool.lease() as env:
                    return await play(env, task, seed, noise=noise)

            played = await asyncio.gather(*(one(seed) for seed in range(episodes)))
            solved = sum(episode.solved for episode in played)
            steps = [len(episode.steps) for episode in played if episode.solved] or [0]
            print(
                f"{task:32} {solved:4d}/{episodes} steps {sum(steps) / len(steps):5.1f} (most {max(steps)}) "
                f"{time.monotonic() - began:5.1f} s",
                flush=True,
            )
            for episode in played:
                if not episode.solved:
                    print(f"    seed {episode.seed}: reward {episode.reward}, {episode.problem or 'no problem named'}")
                    print("       ", "; ".join(step.answer for step in episode.steps)[:600])
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                for index, step in enumerate(played[0].steps):
                    (save / f"{task}-{index}.png").write_bytes(step.image or b"")
