"""`holotron demo`: the bundled policy at work on a handful of tasks, and a page that shows every step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from holotron.cli.errors import failure
from holotron.cli.output import examples
from holotron.cli.policies import (
    Chosen,
    EndpointOption,
    ModelOption,
    NameOption,
    agent_failures,
    opened,
)
from holotron.cli.process_registry import registered
from holotron.cli.steps import tell_step

if TYPE_CHECKING:
    from holotron.agent.agent import Ending, StepRecord
    from holotron.agent.chat import ChatModel
    from holotron.env.task import Task
    from holotron.episodes.record import EnvironmentInfo, PolicyInfo
    from holotron.episodes.store import EpisodeStore

EXAMPLES = examples("holotron demo", "holotron demo --endpoint http://127.0.0.1:8000/v1 --out runs/large")
# A handful of kinds that the bundled policy is made for; `holotron eval miniwob` plays all 125.
TASKS = (
    "click-button",
    "login-user",
    "enter-text",
    "enter-date",
    "choose-list",
    "click-dialog-2",
    "login-user-popup",
    "click-checkboxes",
)
MOST_STEPS = 12


def demo(
    model: ModelOption = None,
    endpoint: EndpointOption = None,
    name: NameOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the episodes; default: runs/demo and the time.")] = None,
) -> None:
    """Solve some widget tasks and three plain pages in a real browser, with seeds and pages kept out of training."""
    from holotron.model.errors import ModelError

    chosen = Chosen(model, False, endpoint, name)
    console = Console(stderr=True, highlight=False)
    if introduction := chosen.introduction():
        console.print(introduction, style="dim")
    folder = out or Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    with registered("demo"), agent_failures(), failure(ModelError):
        played = asyncio.run(_play_all(chosen, folder, console))
    from holotron.episodes.store import EpisodeStore
    from holotron.web.report import write_report

    report = write_report(EpisodeStore(folder), folder / "report.html")
    solved, steps = sum(one.solved for one in played), sum(one.steps for one in played)
    seconds = sum(one.seconds for one in played)
    console.print(f"{solved} of {len(played)} solved, {steps} steps, {seconds / max(1, steps):.2f} s each")
    typer.echo(f"every step, with its screenshot: {report.page}")


@dataclass(frozen=True)
class _Played:
    solved: bool
    steps: int
    seconds: float


async def _play_all(chosen: Chosen, folder: Path, console: Console) -> list[_Played]:
    from holotron.agent.chat import ChatOptions
    from holotron.episodes.store import EpisodeStore

    store = EpisodeStore(folder)
    async with opened(chosen, ChatOptions(max_tokens=96)) as policy:
        return [
            *await _widgets(chosen, policy, store, console),
            *await _pages(chosen, policy, store, console),
        ]


async def _widgets(chosen: Chosen, policy: ChatModel, store: EpisodeStore, console: Console) -> list[_Played]:
    from holotron.agent.agent import Agent, Budget
    from holotron.agent.policy_format import WIDGET_KINDS
    from holotron.env.task import Task
    from holotron.episodes.record import EnvironmentInfo, PolicyInfo
    from holotron.suites.miniwob.config import MiniWoBConfig
    from holotron.suites.miniwob.pages import MiniWoB
    from holotron.suites.miniwob.protocols import HELD_OUT_SEEDS
    from holotron.suites.miniwob.world import MiniWoBWorld

    policy_format, played = chosen.policy_format(kinds=WIDGET_KINDS), []
    async with MiniWoB(MiniWoBConfig(pages=1)) as pool:
        for number, task in enumerate(TASKS):
            async with pool.env() as env:
                seed = HELD_OUT_SEEDS[number]
                await env.reset(task, seed)
                described = Task(text=env.utterance, benchmark="miniwob", name=task, seed=seed)

                async def play(on_step: Callable[[StepRecord], Awaitable[None]], text: str = env.utterance) -> Ending:
                    world = MiniWoBWorld(env)
                    agent = Agent(
                        policy, world, policy_format=policy_format, budget=Budget(steps=MOST_STEPS), on_step=on_step
                    )
                    ending = await agent.run(text)
                    return replace(ending, success=ending.success is True)

                environment = EnvironmentInfo(name="miniwob++", viewport=(160, 210))
                who = PolicyInfo(model=chosen.label, extra={"format": policy_format.spec})
                played.append(await _record(store, described, environment, who, console, play))
    return played


async def _pages(chosen: Chosen, policy: ChatModel, store: EpisodeStore, console: Console) -> list[_Played]:
    from holotron.agent.agent import Agent, Budget
    from holotron.cli.episodes import environment_options
    from holotron.env.browser.environment import BrowserEnv
    from holotron.env.browser.pool import Browsers
    from holotron.env.task import Task
    from holotron.episodes.record import EnvironmentInfo, PolicyInfo
    from holotron.eval.plain_pages import plain_pages, served

    policy_format = chosen.policy_format()
    width, height = policy_format.size or (1280, 800)
    played = []
    with served() as address:
        async with Browsers() as browsers:
            for page in plain_pages():
                url = f"{address}/{page.name}.html"
                options = environment_options(url, width, height, None, False, None, None)
                async with await BrowserEnv.open(browsers, options) as env:
                    await env.goto(url)

                    async def play(
                        on_step: Callable[[StepRecord], Awaitable[None]],
                        text: str = page.task,
                        rule: str = page.success,
                    ) -> Ending:
                        budget = Budget(steps=MOST_STEPS)
                        ending = await Agent(
                            policy, env, policy_format=policy_format, budget=budget, on_step=on_step
                        ).run(text)
                        return replace(ending, success=bool(await env.evaluate(rule)))

                    described = Task(text=page.task, url=url, name=page.name)
                    environment = EnvironmentInfo(name="browser", viewport=(width, height))
                    who = PolicyInfo(model=chosen.label, extra={"format": policy_format.spec})
                    played.append(await _record(store, described, environment, who, console, play))
    return played


async def _record(
    store: EpisodeStore,
    task: Task,
    environment: EnvironmentInfo,
    policy: PolicyInfo,
    console: Console,
    play: Callable[[Callable[[StepRecord], Awaitable[None]]], Awaitable[Ending]],
) -> _Played:
    from holotron.episodes.recording import outcome_of, step_of
    from holotron.episodes.store import new_id

    console.print(f"[bold]{task.name}[/bold]  {task.text}", highlight=False)
    began, steps = time.monotonic(), 0
    with store.begin(task, policy, environment, episode_id=new_id()) as writer:

        async def told(step: StepRecord) -> None:
            nonlocal steps
            steps += 1
            tell_step(console, step)
            await asyncio.to_thread(writer.add_step, step_of(step), step.observation.image)

        ending = await play(told)
        writer.finish(outcome_of(ending))
    console.print("     [green]solved[/green]" if ending.success else "     [red]not solved[/red]")
    return _Played(ending.success is True, steps, time.monotonic() - began)
