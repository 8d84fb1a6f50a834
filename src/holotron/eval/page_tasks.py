"""A small policy on generated full-size pages, of templates it was not taught unless others are asked for.

An episode is won when the policy ends it with an answer and the page says that everything is done, and rightly.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from holotron.agent.agent import Agent, Budget
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import NANO
from holotron.env.errors import InfrastructureError
from holotron.eval.cpu_steal import stolen_seconds, stolen_since
from holotron.eval.statistics import typical, wilson
from holotron.eval.worker_pool import Share, share_out
from holotron.suites.pages.pool import PagePool
from holotron.suites.pages.task import all_templates, draw_task

FIRST_SEED = 10**9  # pages for training are of seeds below
MOST_STEPS = 15
TRIES = 3
Asked = tuple[str, int]  # template, seed


@dataclass(frozen=True)
class PageEpisode:
    """`ended`: the reason of its ending, or "broken" where the browser failed each time.

    seconds: of each step; thinking: the policy's part of them.
    """

    template: str
    seed: int
    steps: int
    ended: str
    success: bool
    seconds: tuple[float, ...] = ()
    thinking: tuple[float, ...] = ()


def play_share(share: Share[Asked]) -> list[PageEpisode]:
    with share.policy() as policy:
        return asyncio.run(_play(share, policy))


async def _play(share: Share[Asked], policy: ChatModel) -> list[PageEpisode]:
    async with PagePool(share.at_once) as pool:
        return await share.each(lambda asked: play_page(pool, policy, *asked))


async def play_page(pool: PagePool, policy: ChatModel, template: str, seed: int) -> PageEpisode:
    task = draw_task(template, seed)
    for _ in range(TRIES):
        async with pool.world() as world:
            try:
                await world.begin(task)
                agent = Agent(policy, world, policy_format=NANO, budget=Budget(steps=MOST_STEPS))
                ending = await agent.run(task.text)
                won = ending.reason == "answered" and (await world.judge(ending.answer)).success is True
                seconds = tuple(round(step.timings.total, 3) for step in agent.steps)
                thinking = tuple(round(step.timings.think, 3) for step in agent.steps)
                return PageEpisode(template, seed, len(seconds), ending.reason, won, seconds, thinking)
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
    began, stolen = time.monotonic(), stolen_seconds()
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
        "stolen_seconds": stolen_since(stolen),
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


def told(found: dict[str, Any]) -> str:
    """The report as a text."""
    lines = [f"  {name:28} {won:3d} of {episodes:3d}" for name, (won, episodes) in found["by_template"].items()]
    low, high = found["interval"]
    times = ", ".join(f"{name} {value:.2f} s" for name, value in found["step_seconds"].items())
    lines.append(
        f"{found['model']}, {found['templates']} templates: {found['successes']} of {found['episodes']} "
        f"({100 * low:.1f} to {100 * high:.1f}%), {found['broken']} broken, {found['steps_per_second']:.1f} steps/s, "
        f"a step: {times}"
    )
    return "\n".join(lines)
