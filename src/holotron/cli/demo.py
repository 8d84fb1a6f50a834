"""`holotron demo`: the bundled policy at work on a handful of tasks, and a page that shows every step."""

from __future__ import annotations

import asyncio
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from holotron.cli import policies
from holotron.cli.errors import failure
from holotron.cli.output import examples, print_step
from holotron.cli.policies import Chosen, agent_failures, opened
from holotron.cli.process_registry import registered
from holotron.env.browser.chromium import WINDOW_FIX, find_chromium, has_screen, require_chromium

if TYPE_CHECKING:
    from holotron.agent.agent import StepRecord
    from holotron.env.task import Task
    from holotron.episodes.fleet import Counters
    from holotron.episodes.record import EpisodeInfo

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
PAGES = ("login/walter", "search/owl", "todo/torch")  # `holotron eval plain` plays all tasks of them, and other pages
MOST_STEPS = 12
NEXT = (
    ("holotron film {folder} --out demo.gif", "the last episode as a moving picture"),
    ('holotron run "log in as ada" --url http://localhost:3000 --record runs/one', "a task of your own, on your page"),
    ("holotron serve holotron-nano", "the same policy as an OpenAI-compatible server; add --endpoint to any command"),
    ("holotron eval miniwob --episodes-per-task 1", "all 125 tasks of MiniWoB++ once, in some minutes"),
)


def demo(
    model: policies.ModelOption = None,
    endpoint: policies.EndpointOption = None,
    name: policies.NameOption = None,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder of the episodes; default: runs/demo and the time.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page, where there is a screen.")] = True,
) -> None:
    """Solve some widget tasks and three plain pages in a real browser, with seeds and pages kept out of training."""
    from holotron.model.errors import ModelError

    chosen = Chosen(model, False, endpoint, name)
    require_chromium()
    console = Console(stderr=True, highlight=False)
    if introduction := chosen.introduction():
        console.print(introduction, style="dim")
    folder = out or Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    with registered("demo"), agent_failures(), failure(ModelError):
        played, seconds = asyncio.run(_play_all(chosen, folder, console))
    from holotron.episodes.store import EpisodeStore
    from holotron.web.report import write_report

    report = write_report(EpisodeStore(folder), folder / "report.html")
    each = seconds / max(1, played.steps)
    console.print(f"{played.succeeded} of {played.finished} solved, {played.steps} steps, {each:.2f} s each")
    if played.skipped:
        console.print(f"{played.skipped} were there already; another --out plays them anew")
    address = report.page.resolve().as_uri()
    console.print("every step, with its screenshot:")
    typer.echo(address)
    if open_ and has_screen():
        webbrowser.open(address)
    console.print("\nWhat to try next:", style="bold")
    for command, what in NEXT:
        console.print(f"  {command.format(folder=folder)}\n      {what}", soft_wrap=True, markup=False)
    if find_chromium(window=True)[0] is None:
        console.print(f"  {WINDOW_FIX}\n      a browser with a window, for run --headed", soft_wrap=True, markup=False)


async def _play_all(chosen: Chosen, folder: Path, console: Console) -> tuple[Counters, float]:
    """What was played, told as it happens, and the seconds that the steps took."""
    from holotron.agent.agent import Budget
    from holotron.episodes.fleet import Counters, Fleet
    from holotron.episodes.store import EpisodeStore
    from holotron.suites.play import Play
    from holotron.suites.suite import HELD_OUT_SEEDS, find_suite

    played, seconds, widgets, pages = Counters(), 0.0, find_suite("miniwob"), find_suite("plain")

    def told(task: Task, step: StepRecord) -> None:
        nonlocal seconds
        seconds += step.timings.total
        if step.index == 0:
            console.print(f"[bold]{task.name}[/bold]  {task.text}", highlight=False)
        print_step(console, step)

    def ended(info: EpisodeInfo) -> None:
        solved = info.outcome is not None and info.outcome.success is True
        console.print("     [green]solved[/green]" if solved else "     [red]not solved[/red]")

    pages.view = chosen.policy_format().size
    small = [widgets.task(task, HELD_OUT_SEEDS[number]) for number, task in enumerate(TASKS)]
    async with opened(chosen, chosen.policy_format().options(96)) as policy:
        for suite, tasks in ((widgets, small), (pages, pages.tasks(PAGES, HELD_OUT_SEEDS[:1]))):
            policy_format = chosen.policy_format(kinds=suite.kinds)
            info = chosen.info(policy_format)
            play = Play(suite, folder, info, policy_format, Budget(steps=MOST_STEPS), "positive")
            async with suite.pool(1) as pool:
                attempts = play.attempts(pool, policy)
                fleet = Fleet(
                    EpisodeStore(folder), attempts, info, suite.environment, sessions=1, on_step=told, on_episode=ended
                )
                played.add(await fleet.run(tasks))
    return played, seconds
