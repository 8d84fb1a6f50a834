"""How good the oracles are: every task played on seeds, undisturbed and disturbed, as a table in Markdown."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from holotron.env.browser.chromium import require_chromium
from holotron.env.errors import InfrastructureError
from holotron.suites.miniwob.config import MiniWoBConfig
from holotron.suites.miniwob.oracle.play import MOST_STEPS, Played, play
from holotron.suites.miniwob.oracle.registry import ORACLES
from holotron.suites.miniwob.pool import miniwob_pool
from holotron.suites.miniwob.tasks import all_tasks

WITHOUT_ORACLE = {
    "drag-cube": "cannot be done with a drag from one point to another",
    "draw-circle": "cannot be done with a drag from one point to another",
}
LOW = 0.9
# Why an oracle solves less than that share of its undisturbed episodes.
REASONS = {
    "click-pie": "the menu takes its first item for chosen from the start, and that item does not answer to clicks",
    "click-pie-nodelay": "as click-pie",
    "tic-tac-toe": "the opponent's luck; a draw counts as lost, so the oracle risks losing where it could force one",
}


@dataclass(frozen=True)
class Tried:
    """What came of the episodes of one task; those that the browser broke are not among them."""

    solved: int
    played: int
    mean_steps: float  # of the solved ones
    losses: str  # how the others were lost, the most frequent way first

    @property
    def share(self) -> float:
        return self.solved / max(self.played, 1)

    def __str__(self) -> str:
        return f"{self.solved}/{self.played}"


async def try_all(tasks: Sequence[str], episodes: int, noise: float, pages: int) -> dict[str, tuple[Tried, Tried]]:
    """Every task on the first seeds, undisturbed and disturbed, many episodes at once."""
    async with miniwob_pool(MiniWoBConfig(pages=pages)) as pool:

        async def one(task: str, seed: int, noise: float) -> Played | None:
            async with pool.lease() as env:
                try:
                    return await play(env, task, seed, noise=noise)
                except InfrastructureError:
                    return None

        async def all_seeds(task: str, noise: float) -> Tried:
            played = await asyncio.gather(*(one(task, seed, noise) for seed in range(episodes)))
            return summarise([episode for episode in played if episode is not None])

        async def both_ways(task: str) -> tuple[Tried, Tried]:
            calm, disturbed = await asyncio.gather(all_seeds(task, 0.0), all_seeds(task, noise))
            print(
                f"{task:32} {calm} {disturbed} steps {calm.mean_steps:.1f} {calm.losses}", file=sys.stderr, flush=True
            )
            return calm, disturbed

        return dict(zip(tasks, await asyncio.gather(*map(both_ways, tasks)), strict=True))


def summarise(played: Sequence[Played]) -> Tried:
    solved = [episode for episode in played if episode.solved]
    lost = [episode for episode in played if not episode.solved]
    ways = Counter(
        episode.problem.splitlines()[0][:80] if episode.problem else f"reward {episode.reward:.2g}" for episode in lost
    )
    steps = sum(len(episode.steps) for episode in solved) / max(len(solved), 1)
    return Tried(len(solved), len(played), steps, ", ".join(f"{count}× {way}" for way, count in ways.most_common()))


def table(tried: dict[str, tuple[Tried, Tried]], noise: float, command: str) -> str:
    return "\n".join(_lines(tried, noise, command)) + "\n"


def _lines(tried: dict[str, tuple[Tried, Tried]], noise: float, command: str) -> Iterator[str]:
    calm, disturbed = ([pair[index] for pair in tried.values()] for index in (0, 1))
    yield "# The oracles of MiniWoB++"
    yield ""
    yield (
        f"{len(ORACLES)} of {len(all_tasks())} tasks have an oracle. Of the episodes of {len(tried)} tasks they solved "
        f"{_total(calm)} undisturbed and {_total(disturbed)} with a clumsy click in place of {noise:.0%} of the steps, "
        f"which may end an episode for good. {sum(one.share >= LOW for one in calm)} tasks are at {LOW:.0%} or more "
        f"undisturbed, {sum(one.share >= LOW for one in disturbed)} disturbed."
    )
    yield ""
    yield f"{browser_version()}, {date.today()}, seeds from 0 on, at most {MOST_STEPS} steps: `{command}`"
    yield ""
    yield "Steps are the mean of the undisturbed episodes that were solved."
    yield ""
    yield "| task | undisturbed | disturbed | steps | how undisturbed episodes were lost |"
    yield "|---|---:|---:|---:|---|"
    for task, (undisturbed, after_noise) in tried.items():
        yield f"| {task} | {undisturbed} | {after_noise} | {undisturbed.mean_steps:.1f} | {undisturbed.losses} |"
    low = [task for task, (undisturbed, _) in tried.items() if undisturbed.share < LOW]
    if low:
        yield from ("", f"Below {LOW:.0%} undisturbed:", "")
        yield from (f"- {task}: {REASONS.get(task, 'not known')}" for task in low)
    yield from ("", "Without an oracle:", "")
    yield from (f"- {task}: {WITHOUT_ORACLE.get(task, 'not known')}" for task in all_tasks() if task not in ORACLES)


def _total(all_tried: Sequence[Tried]) -> str:
    solved, played = sum(one.solved for one in all_tried), sum(one.played for one in all_tried)
    return f"{solved} of {played} ({solved / max(played, 1):.1%})"


def browser_version() -> str:
    said = subprocess.run([require_chromium(), "--version"], capture_output=True, text=True, timeout=30, check=True)
    return said.stdout.strip()
