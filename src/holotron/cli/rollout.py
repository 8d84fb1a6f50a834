"""`holotron rollout`: many tasks by many agents at once, every episode kept."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holotron.cli import policies
from holotron.cli.errors import Misuse, fail_if_all_lost, listed, misuse
from holotron.cli.output import examples, print_json
from holotron.cli.policies import Chosen, agent_failures, opened, player
from holotron.cli.process_registry import registered
from holotron.cli.progress import fleet_progress

if TYPE_CHECKING:
    from holotron.suites.suite import Suite

EXAMPLES = examples(
    "holotron rollout tasks.jsonl --endpoint http://127.0.0.1:8000/v1 --sessions 32 --group 8 --out episodes",
    "holotron rollout webapps --root webarena-infinity --split function --group 8 --out episodes",
    "holotron rollout tasks.jsonl --endpoint http://10.0.0.1:8000/v1 --ray auto --workers 8 --out episodes",
    "holotron view episodes",
)


def rollout(
    tasks: Annotated[
        Path,
        typer.Argument(
            help='JSON lines: {"task": "…", "url": "…"}, if wanted "name", "seed", "success"; or webapps, with --root.'
        ),
    ],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the episodes; a second run goes on in it.")],
    model: policies.ModelOption = None,
    random: policies.RandomOption = False,
    endpoint: policies.EndpointOption = None,
    name: policies.NameOption = None,
    sessions: Annotated[int, typer.Option(min=1, max=4096, help="Agents at work at once.")] = 8,
    workers: policies.WorkersOption = 1,
    browsers: policies.BrowsersOption = 2,
    ray: policies.RayOption = None,
    group: Annotated[int, typer.Option(min=1, max=1024, help="Attempts at each task.")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Most steps of one episode; default 30, of webapps 50.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Most seconds of one episode.")] = 600.0,
    temperature: policies.TemperatureOption = 1.0,
    max_tokens: policies.MaxTokensOption = 512,
    width: Annotated[
        int | None,
        typer.Option(min=100, max=8000, help="Of the view; default: what the model is best at."),
    ] = None,
    height: Annotated[int | None, typer.Option(min=100, max=8000)] = None,
    allow: Annotated[list[str] | None, typer.Option(help="Origins besides the task's own.")] = None,
    anywhere: Annotated[bool, typer.Option("--anywhere", help="Any public site.")] = False,
    allow_private: policies.AllowPrivateOption = None,
    root: policies.RootOption = None,
    apps: policies.AppsOption = None,
    split: Annotated[str, typer.Option(help="Of webapps: real or function.")] = "real",
    device: policies.DeviceOption = None,
    bare: policies.BareOption = False,
    format_: policies.FormatOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Run a fleet. What breaks is tried again; what is finished is never lost; Ctrl-C and a new start go on."""
    from holotron.agent.agent import Budget
    from holotron.episodes.fleet import unfinished
    from holotron.episodes.store import EpisodeStore
    from holotron.suites.play import Play
    from holotron.suites.web import TaskFileError, WebSuite, read_tasks
    from holotron.suites.webapps.suite import WebAppsSuite

    chosen = Chosen(model, random, endpoint, name, format_)
    playing = player(ray, chosen)
    suite: Suite[Any]
    if root is not None:
        if str(tasks) != WebAppsSuite.name:
            raise Misuse(f"--root goes with the tasks {WebAppsSuite.name}, not with {tasks}")
        if width or height or allow or anywhere or allow_private:
            raise Misuse("webapps have a view and an origin of their own; leave out --width, --height and --allow…")
        policy_format = chosen.policy_format(bare, WebAppsSuite.kinds)
        with misuse(ValueError):
            suite = WebAppsSuite(root, tuple(listed(apps)))
            named = suite.tasks(suite.part(split), [0])
        wanted = [task.model_copy(update={"sample": sample}) for task in named for sample in range(group)]
    else:
        if str(tasks) == WebAppsSuite.name and not tasks.exists():
            raise Misuse("webapps needs --root: the folder of WebArena-Infinity, or of its apps")
        if not tasks.is_file():
            raise Misuse(f"'TASKS': File {str(tasks)!r} does not exist or is no file")
        with misuse(TaskFileError):
            wanted = read_tasks(tasks, group)
        policy_format = chosen.policy_format(bare)
        best_width, best_height = policy_format.size or (WebSuite.width, WebSuite.height)
        with misuse(ValueError):
            view = (width or best_width, height or best_height)
            suite = WebSuite(*view, tuple(allow or ()), anywhere, tuple(allow_private or ()))
    play = Play(
        suite,
        out,
        chosen.info(policy_format, sampling={"temperature": temperature}),
        policy_format,
        Budget(steps=steps or (30 if root is None else WebAppsSuite.max_steps), seconds=seconds),
        suite.rule,
    )

    async def main() -> dict[str, Any]:
        style = policy_format.options(max_tokens, temperature)
        left = unfinished(EpisodeStore(out), wanted)
        async with opened(chosen, style, device, sessions) if left else nullcontext() as acting:
            with fleet_progress("rollout") as update:
                counters = await playing(
                    play, wanted, acting, sessions=sessions, browsers=browsers, workers=workers, on_change=update
                )
        return asdict(counters) | {"steps_per_second": counters.steps_per_second}

    with registered("rollout", goes_on=True), agent_failures():
        counts = asyncio.run(main())
    if as_json:
        print_json({key: value for key, value in counts.items() if key not in ("began", "first_step", "last_step")})
    else:
        typer.echo(
            f"{counts['finished']} episodes finished, {counts['skipped']} were there already, "
            f"{counts['infrastructure']} lost to the infrastructure after {counts['retried']} retries; look at them "
            f"with: holotron view {out}"
        )
    fail_if_all_lost(counts["finished"] + counts["skipped"], counts["infrastructure"], counts["problem"])
