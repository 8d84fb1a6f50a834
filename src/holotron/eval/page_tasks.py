"""A small policy on generated full-size pages, of templates it was not taught unless others are asked for.

python -m holotron.eval.page_tasks MODEL [--episodes-per-template 20] [--taught] [--out FILE.json]

An episode is won when the policy ends it with an answer and the page says that everything is done, and rightly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from holotron.agent.agent import Agent, Budget
from holotron.agent.chat import ChatModel
from holotron.agent.manner import Manner
from holotron.data.pages.pool import PagePool
from holotron.data.pages.task import all_templates, draw_task
from holotron.env.errors import InfrastructureError
from holotron.eval.shares import Share, share_out
from holotron.eval.statistics import typical, wilson

FIRST_SEED = 10**9  # pages for training are of seeds below
MOST_STEPS = 15
TRIES = 3
FORM = Manner(terse=True).form()
Asked = tuple[str, int]  # template, seed


@dataclass(frozen=True)
class PageEpisode:
    """`ended`: the reason of its ending, or "broken" where the browser failed each time. seconds: of each step."""

    template: str
    seed: int
    steps: int
    ended: str
    success: bool
    seconds: tuple[float, ...] = ()


def play_share(share: Share[Asked]) -> list[PageEpisode]:
    with share.policy() as policy:
        return asyncio.run(_play(share, policy))


async def _play(share: Share[Asked], policy: ChatModel) -> list[PageEpisode]:
    left = list(reversed(share.items))
    played: list[PageEpisode] = []
    async with PagePool(share.at_once) as pool:

        async def page() -> None:
            while left:
                template, seed = left.pop()
                played.append(await play_page(pool, policy, template, seed))

        await asyncio.gather(*(page() for _ in range(share.at_once)))
    return played


async def play_page(pool: PagePool, policy: ChatModel, template: str, seed: int) -> PageEpisode:
    task = draw_task(template, seed)
    for _ in range(TRIES):
        async with pool.world() as world:
            try:
                await world.begin(task)
                agent = Agent(policy, world, form=FORM, budget=Budget(steps=MOST_STEPS))
                ending = await agent.run(task.text)
                won = ending.reason == "answered" and (await world.judge(ending.answer)).success is True
                seconds = tuple(round(step.timings.total, 3) for step in agent.steps)
                return PageEpisode(template, seed, len(seconds), ending.reason, won, seconds)
            except InfrastructureError:
                continue
    return PageEpisode(template, seed, 0, "broken", False)


def page_tasks(
    model: str,
    episodes_per_template: int,
    *,
    held_out: bool = True,
    device: str | None = None,
    workers: int = 1,
    pages: int = 4,
) -> dict[str, Any]:
    """Success by template and over all. Broken episodes are left out and counted apart."""
    templates = [template.name for template in all_templates(held_out=held_out)]
    wanted = [(template, FIRST_SEED + number) for number in range(episodes_per_template) for template in templates]
    began = time.monotonic()
    played = share_out(play_share, wanted, model, device=device, workers=workers, at_once=pages)
    whole = [episode for episode in played if episode.ended != "broken"]
    won = sum(episode.success for episode in whole)
    seconds = time.monotonic() - began
    return {
        "model": model,
        "date": date.today().isoformat(),
        "templates": "held out" if held_out else "taught",
        "seconds": seconds,
        "steps_per_second": sum(episode.steps for episode in played) / seconds,
        "at_once": workers * pages,
        "step_seconds": typical([step for episode in played for step in episode.seconds]),
        "success_rate": won / len(whole) if whole else None,
        "interval": wilson(won, len(whole)),
        "episodes": len(whole),
        "successes": won,
        "broken": len(played) - len(whole),
        "by_template": {
            name: [sum(e.success for e in whole if e.template == name), sum(e.template == name for e in whole)]
            for name in templates
        },
        "played": [asdict(episode) for episode in sorted(played, key=lambda e: (e.template, e.seed))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m holotron.eval.page_tasks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="a checkpoint folder of a small policy, its name, or 'random'")
    parser.add_argument("--episodes-per-template", type=int, default=20)
    parser.add_argument("--taught", action="store_true", help="the templates it was taught, with seeds it was not")
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--pages", type=int, default=4, help="of each process")
    parser.add_argument("--out", type=Path, help="file for the whole report as JSON")
    given = parser.parse_args()
    found = page_tasks(
        given.model,
        given.episodes_per_template,
        held_out=not given.taught,
        device=given.device,
        workers=given.workers,
        pages=given.pages,
    )
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found), encoding="utf-8")
    for name, (successes, episodes) in found["by_template"].items():
        print(f"  {name:28} {successes:3d} of {episodes:3d}")
    low, high = found["interval"]
    print(
        f"{given.model}, {found['templates']} templates: {found['successes']} of {found['episodes']} "
        f"({100 * low:.1f} to {100 * high:.1f}%), {found['broken']} broken, {found['steps_per_second']:.1f} steps/s, "
        "a step: " + ", ".join(f"{name} {value:.2f} s" for name, value in found["step_seconds"].items())
    )


if __name__ == "__main__":
    main()
