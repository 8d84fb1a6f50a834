"""Templates tried out, for whoever writes one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from holotron.suites.pages.make import PAGES, on_page
from holotron.suites.pages.play import PlayedPage, play_page
from holotron.suites.pages.pool import page_pool


async def try_templates(names: Sequence[str], episodes: int, noise: float, first: int, save: Path | None) -> bool:
    """Print how each template's teacher fares; whether all succeeded."""
    fine = True
    async with page_pool(PAGES) as pool:
        for name in names:
            began = time.monotonic()
            play = partial(play_page, noise=noise)
            played = await asyncio.gather(*(on_page(pool, name, first + index, play) for index in range(episodes)))
            there = [episode for episode in played if episode is not None]
            solved = [episode for episode in there if episode.reward == 1]
            steps, seconds = sum(len(episode.turns) for episode in there), time.monotonic() - began
            print(f"{name:24} {len(solved):4d}/{episodes} {steps / max(1, len(there)):5.1f} steps, "
                  f"{steps / seconds:5.1f} steps/s", flush=True)  # fmt: skip
            fine = fine and len(solved) == episodes
            for episode in there:
                if episode.reward != 1 and not noise:
                    print(f"    seed {episode.task.seed}: {episode.problem or 'reward 0'}: {episode.task.text}")
                    print("       ", "; ".join(turn.answer for turn in episode.turns)[:600])
                if save is not None:
                    _save(save, episode)
    return fine


def _save(folder: Path, episode: PlayedPage) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{episode.task.template}-{episode.task.seed}"
    lines = [episode.task.text, *(turn.answer for turn in episode.turns)]
    (folder / f"{stem}.txt").write_text("\n".join(lines) + "\n")
    for index, turn in enumerate(episode.turns):
        (folder / f"{stem}-{index}.png").write_bytes(turn.image or b"")
