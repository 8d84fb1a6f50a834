"""`holotron data`: stored episodes done again. Making them: see generate.py; out, in and checked: see transfer.py."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from holotron.cli import annotate, generate, transfer
from holotron.cli.errors import DONE, FAILED, Misuse, failure, misuse
from holotron.cli.output import JsonOption, command_group, console, examples, plain_table, print_json
from holotron.cli.policies import AllowPrivateOption
from holotron.cli.progress import passing_progress
from holotron.cli.terminal import visible
from holotron.cli.transfer import StoreArgument, existing

if TYPE_CHECKING:
    from holotron.episodes.replay import ReplayReport

app = command_group(
    "To learn from: episodes by teachers (miniwob, pages, libraries), screens, and data sets of others (import). Stored"
    " episodes: export, import, annotate, check, replay.",
    examples(
        "holotron data miniwob --out data/miniwob --episodes 5000 --workers 4",
        "holotron data import agentnet data/agentnet_ubuntu.jsonl --out data/agentnet --check",
        "holotron data export runs/today today.parquet --as parquet",
    ),
)

app.command("screens", epilog=generate.SCREENS_EXAMPLES)(generate.screens)
app.command("miniwob", epilog=generate.MINIWOB_EXAMPLES)(generate.teaching("miniwob", "Tasks of MiniWoB++"))
app.command("pages", epilog=generate.PAGES_EXAMPLES)(generate.teaching("pages", "Templates of generated pages"))
app.command("libraries", epilog=generate.LIBRARIES_EXAMPLES)(
    generate.teaching("libraries", "LIBRARY/TEMPLATE: generated pages in the looks of published UI libraries")
)
app.command("fetch-libraries", epilog=generate.FETCH_EXAMPLES)(generate.fetch)


app.command("export", epilog=transfer.EXPORT_EXAMPLES)(transfer.export)
app.command("import", epilog=transfer.IMPORT_EXAMPLES)(transfer.import_)
app.command("annotate", epilog=annotate.EXAMPLES)(annotate.annotate)
app.command("check", epilog=transfer.CHECK_EXAMPLES)(transfer.check)


@app.command(
    "replay",
    epilog=examples(
        "holotron data replay runs/today run.20260101-120000.0123456789ab --out changes",
        "holotron data replay runs/today my-episode --allow http://127.0.0.1:8000 --go-on --json",
    ),
)
def replay(
    store: StoreArgument,
    episode: Annotated[str, typer.Argument(metavar="EPISODE", help="The episode's id.")],
    out: Annotated[Path | None, typer.Option(help="A folder for pictures of the steps that changed.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Share of the pixels that may differ (default: 0.00005)")
    ] = None,
    go_on: Annotated[bool, typer.Option("--go-on", help="Go on after an action that failed.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="May be visited, and nothing else may (default: what the episode visited)."
        ),
    ] = None,
    allow_private: AllowPrivateOption = None,
    json: JsonOption = False,
) -> None:
    """Do an episode again in a browser and say at which steps the page is another. The actions are real ones."""
    existing(store)
    import asyncio

    from holotron.env.browser.options import EnvOptions
    from holotron.env.browser.pool import Browsers
    from holotron.env.errors import InfrastructureError, Refused
    from holotron.env.safety.policy import SafetyPolicy
    from holotron.episodes.errors import Damaged, EpisodeError, NewerSchema
    from holotron.episodes.replay import TOLERANCE, ReplayError
    from holotron.episodes.replay import replay as play
    from holotron.episodes.store import EpisodeStore

    opened = EpisodeStore(store)
    with misuse(ValueError):
        safety = SafetyPolicy(allow or None, allow_private or ())
    try:
        opened.info(episode)
    except (Damaged, NewerSchema):
        raise
    except EpisodeError as error:
        raise Misuse(str(error)) from error
    if out is not None and out.exists() and not out.is_dir():
        raise Misuse(f"--out {out} is a file; it must be a folder")

    async def main() -> ReplayReport:
        with passing_progress("steps") as update:
            update(total=opened.info(episode).step_count)
            async with Browsers() as browsers:
                return await play(
                    opened,
                    episode,
                    browsers,
                    out=out,
                    tolerance=TOLERANCE if tolerance is None else tolerance,
                    go_on=go_on,
                    options=EnvOptions(safety=safety) if allow else None,
                    allow_private=allow_private or (),
                    on_step=lambda _: update(advance=1),
                )

    try:
        with failure(InfrastructureError):
            report = asyncio.run(main())
    except ReplayError as error:
        if not isinstance(error.__cause__, Refused):
            raise
        hint = "" if "--allow" in str(error) else "; --allow ORIGIN lets it be visited"
        raise ReplayError(f"{error}{hint}") from error
    if json:
        print_json(report.to_dict())
    else:
        _print_report(report)
    raise typer.Exit(DONE if report.same else FAILED)


def _print_report(report: ReplayReport) -> None:
    from rich.text import Text

    from holotron.episodes.replay import Status

    table = plain_table(gap=1)
    for heading in ("step", "", "pixels", "action and what happened"):
        table.add_column(heading, justify="right" if heading in ("step", "pixels") else "left")
    colours = {"same": "green", "changed": "yellow", "failed": "red"}
    for step in report.steps:
        share = "" if step.difference is None else f"{100 * step.difference.share:.3g}%"
        what = Text(visible("\n".join(filter(None, [step.action, step.detail, step.picture]))))
        table.add_row(str(step.index), Text(step.status, style=colours[step.status]), share, what)
    out = console()
    out.print(table)
    counts = ", ".join(f"{len(report.indices(status))} {status}" for status in get_args(Status))
    out.print(f"{len(report.steps)} of {report.total} steps replayed: {counts}", soft_wrap=True)
