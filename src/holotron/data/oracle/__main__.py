"""Tries oracles out: `python -m holotron.data.oracle click-button --episodes 20 [--noise 0.2] [--save DIR]`."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from holotron.data.oracle.play import Played, play
from holotron.data.oracle.registry import ORACLES
from holotron.data.oracle.teachers import load_teachers
from holotron.env.miniwob.config import MiniWoBConfig
from holotron.env.miniwob.pages import MiniWoB


async def _try_all(tasks: list[str], episodes: int, noise: float, save: Path | None) -> None:
    async with MiniWoB(MiniWoBConfig(pages=4)) as pool:
        for task in tasks:
            began = time.monotonic()

            async def one(seed: int, task: str = task) -> Played:
                async with pool.env() as env:
                    return await play(env, task, seed, noise=noise)

            played = await asyncio.gather(*(one(seed) for seed in range(episodes)))
            solved = sum(episode.reward == 1 for episode in played)
            steps = [len(episode.steps) for episode in played if episode.reward == 1] or [0]
            print(
                f"{task:32} {solved:4d}/{episodes} steps {sum(steps) / len(steps):5.1f} (most {max(steps)}) "
                f"{time.monotonic() - began:5.1f} s",
                flush=True,
            )
            for episode in played:
                if episode.reward != 1:
                    print(f"    seed {episode.seed}: reward {episode.reward}, {episode.problem or 'no problem named'}")
                    print("       ", "; ".join(step.answer for step in episode.steps)[:600])
            if save is not None:
                save.mkdir(parents=True, exist_ok=True)
                for index, step in enumerate(played[0].steps):
                    (save / f"{task}-{index}.png").write_bytes(step.image or b"")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m holotron.data.oracle")
    parser.add_argument("tasks", nargs="*", help="tasks; all that have an oracle if none is named")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.0, help="probability of a random action before each step")
    parser.add_argument("--save", type=Path, help="keep the screenshots of each task's first episode there")
    given = parser.parse_args()
    load_teachers()
    asyncio.run(_try_all(given.tasks or sorted(ORACLES), given.episodes, given.noise, given.save))


if __name__ == "__main__":
    main()
