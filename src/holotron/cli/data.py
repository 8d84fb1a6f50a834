"""`holotron data`: stored episodes brought out, brought in, checked, and done again. Making them: see generate.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from holotron.cli import generate
from holotron.cli.errors import DONE, FAILED, Misuse, choose, failure, misuse
from holotron.cli.output import JsonOption, command_group, console, examples, plain_table, print_json
from holotron.cli.progress import passing_progress
from holotron.cli.terminal import visible

if TYPE_CHECKING:
    from holotron.episodes.replay import ReplayReport
    from holotron.episodes.store import EpisodeStore

FORMATS = ("parquet", "openai", "browsergym", "uitars")
IMAGES = ("embed", "reference")

app = command_group(
    "To learn from: episodes by teachers (miniwob, pages), and screens. Stored episodes: export, import, check,"
    " replay.",
    examples(
        "holotron data miniwob --out data/miniwob --episodes 5000 --workers 4",
        "holotron data export runs/today today.parquet --format parquet",
    ),
)

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="A folder of episodes.")]
FormatOption = Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")]


app.command("screens", epilog=generate.SCREENS_EXAMPLES)(generate.screens)
app.command("miniwob", epilog=generate.MINIWOB_EXAMPLES)(generate.teaching("miniwob", "Tasks of MiniWoB++"))
app.command("pages", epilog=generate.PAGES_EXAMPLES)(generate.teaching("pages", "Templates of generated pages"))


@app.command(
    "export",
    epilog=examples(
        "holotron data export runs/today today.parquet --format parquet",
        "holotron data export runs/today today.jsonl --format openai --images reference",
    ),
)
def export(
    store: StoreArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; one of that name is replaced.")],
    format: FormatOption,
    images: Annotated[str, typer.Option(help="embed: inside the file; reference: their path in the store.")] = "embed",
    json: JsonOption = False,
) -> None:
    """Write all finished episodes of a store into one file. Parquet keeps everything, the others what they can say."""
    choose("--format", format, FORMATS)
    choose("--images", images, IMAGES)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise Misuse(f"{out} cannot be written: " + ("it is a folder" if out.is_dir() else "its folder is not there"))
    from holotron.episodes.transfer import export as write

    damage: list[str] = []
    with passing_progress("episodes") as update:
        opened = _watched(_existing(store), update)
        chosen = opened.list_episodes(finished=True, on_damage=lambda error: damage.append(str(error)))
        if not chosen:
            raise ValueError(f"{store} has no finished episode to export" + (f": {damage[0]}" if damage else ""))
        update(total=len(chosen))
        count = write(opened, out, format, images=images, episodes=chosen)  # type: ignore[arg-type]
    for problem in damage:
        typer.echo(visible(f"left out: {problem}"), err=True)
    if json:
        print_json({"file": str(out), "format": format, "episodes": count, "left_out": damage})
    else:
        console().print(f"{count} episodes written to {out}", soft_wrap=True)


@app.command(
    "import",
    epilog=examples(
        "holotron data import today.parquet runs/copy --format parquet",
        "holotron data import today.jsonl runs/copy --format openai --images-from runs/today",
    ),
)
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that an export has written.")],
    store: StoreArgument,
    format: FormatOption,
    images_from: Annotated[
        Path | None, typer.Option(metavar="STORE", help="The store that has the images which the file only names.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Bring a file's episodes into a store. Those it has finished are left alone."""
    choose("--format", format, FORMATS)
    if not file.is_file():
        raise Misuse(f"there is no file {file}")
    if store.exists() and not store.is_dir():
        raise Misuse(f"{store} is a file; a store is a folder")
    from holotron.episodes.store import EpisodeStore
    from holotron.episodes.transfer import import_ as read

    named = None if images_from is None else EpisodeStore(_existing(images_from)).images
    with passing_progress("episodes") as update:
        imported = read(file, _watched(store, update), format, images=named)  # type: ignore[arg-type]
    if json:
        print_json({"store": str(store), "imported": imported})
    else:
        console().print(f"{len(imported)} episodes brought into {store}", soft_wrap=True)


@app.command("check", epilog=examples("holotron data check runs/today", "holotron data check runs/today --json"))
def check(store: StoreArgument, json: JsonOption = False) -> None:
    """Read everything in a store and list what is damaged or missing."""
    with passing_progress("episodes") as update:
        opened = _watched(_existing(store), update)
        infos = opened.list_episodes(on_damage=lambda _: None)  # check() tells about these
        update(total=len(infos))
        problems = opened.check()
    unfinished = sum(not info.finished for info in infos)
    if json:
        print_json({"episodes": len(infos), "unfinished": unfinished, "problems": problems})
    else:
        for problem in problems:
            console().print(visible(problem), soft_wrap=True, markup=False)
        typer.echo(f"{len(infos)} episodes, {unfinished} unfinished, {len(problems)} problems")
    raise typer.Exit(FAILED if problems else DONE)


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
    json: JsonOption = False,
) -> None:
    """Do an episode again in a browser and say at which steps the page is another. The actions are real ones."""
    _existing(store)
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
        options = EnvOptions(safety=SafetyPolicy(allow)) if allow else None
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
                    options=options,
                    on_step=lambda _: update(advance=1),
                )

    try:
        with failure(InfrastructureError):
            report = asyncio.run(main())
    except ReplayError as error:
        if not isinstance(error.__cause__, Refused):
            raise
        raise ReplayError(f"{error}; --allow ORIGIN lets it be visited") from error
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


# ---- common ----


def _existing(folder: Path) -> Path:
    if not (folder / "episodes").is_dir():
        raise Misuse(f"{folder} is no store of episodes; it has no folder 'episodes'")
    return folder


def _watched(folder: Path, update: Callable[..., None]) -> EpisodeStore:
    """A store that tells when an episode is begun or read."""
    from holotron.episodes.store import EpisodeStore

    class Watched(EpisodeStore):
        def begin(self, *arguments: Any, **options: Any) -> Any:
            update(advance=1)
            return super().begin(*arguments, **options)

        def steps(self, *arguments: Any, **options: Any) -> Any:
            update(advance=1)
            return super().steps(*arguments, **options)

    return Watched(folder)
