"""`holotron data export|import|check`: episodes out of a store, into one, and looked over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holotron.cli.errors import DONE, FAILED, Misuse, choose, misuse
from holotron.cli.output import JsonOption, console, examples, print_json
from holotron.cli.progress import passing_progress
from holotron.cli.terminal import visible

if TYPE_CHECKING:
    from holotron.episodes.datasets.importer import ImportReport
    from holotron.episodes.datasets.settings import ImportSettings
    from holotron.episodes.store import EpisodeStore

EPISODES = ("parquet", "responses", "browsergym", "uitars")  # whole episodes: written here, read here
LAYOUTS = ("openai", "agentnet", "llava", "screenspot")  # data sets, as others publish them
EXPORTS = (*EPISODES, "openai", "llava", "screenspot")
IMAGES = ("embed", "reference")
CHECK_PAGE = "check.html"
EXPORT_EXAMPLES = examples(
    "holotron data export runs/today today.parquet --as parquet",
    "holotron data export runs/today chat.jsonl --as openai --policy-format holo2",
    "holotron data export runs/today steps/steps.jsonl --as llava",
)
IMPORT_EXAMPLES = examples(
    "holotron data import agentnet agentnet_ubuntu_5k.jsonl --images ubuntu_images --out data/agentnet",
    "holotron data import llava ScaleCUA/meta.json --out data/scalecua --check",
    "holotron data import screenspot ScreenSpot-v2 --boxes xywh --space pixels --out data/screenspot",
    "holotron data import openai chat.jsonl --answers holo2 --out data/chat --max-bad 0.05",
    "holotron data import parquet today.parquet --out runs/copy",
)
CHECK_EXAMPLES = examples(
    "holotron data check runs/today",
    "holotron data check data/agentnet --page agentnet.html --samples 40 --policy-format holo2",
)

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="A folder of episodes.")]
PolicyFormatOption = Annotated[str, typer.Option(help="The policy format in whose words answers are written.")]
SamplesOption = Annotated[int, typer.Option(min=1, max=1000, help="Steps on the page.")]


def export(
    store: StoreArgument,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; one of that name is replaced.")],
    format: Annotated[
        str,
        typer.Option(
            "--as",
            "--format",
            help=f"Whole episodes: {', '.join(EPISODES)}. A data set for other trainers: {', '.join(EXPORTS[4:])}.",
        ),
    ],
    images: Annotated[
        str, typer.Option(help="embed: inside the file, or beside it; reference: their path in the store.")
    ] = "embed",
    policy_format: PolicyFormatOption = "json",
    failed: Annotated[
        bool, typer.Option("--failed", help="For other trainers: also episodes that did not succeed.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write all finished episodes of a store into one file. Parquet keeps everything, the others what they can say.

    A data set for other trainers has what a recipe would learn: what was done well in episodes that succeeded.
    """
    choose("--as", format, EXPORTS)
    choose("--images", images, IMAGES)
    if out.is_dir() or not out.absolute().parent.is_dir():
        raise Misuse(f"{out} cannot be written: " + ("it is a folder" if out.is_dir() else "its folder is not there"))
    with misuse(ValueError):
        words = _policy_format(policy_format)
    damage: list[str] = []
    with passing_progress("episodes") as update:
        opened = _watched(existing(store), update)
        chosen = opened.list_episodes(finished=True, on_damage=lambda error: damage.append(str(error)))
        if not chosen:
            raise ValueError(f"{store} has no finished episode to export" + (f": {damage[0]}" if damage else ""))
        update(total=len(chosen))
        if format in EPISODES:
            from holotron.episodes.transfer import export as write

            count = write(opened, out, format, images=images, episodes=chosen)  # type: ignore[arg-type]
        else:
            from holotron.episodes.datasets.exporter import export_dataset

            damage.clear()  # it tells of these again
            form: Any = format
            place: Any = images
            count = export_dataset(opened, out, form, words, images=place, successes=not failed, left_out=damage.append)
    for problem in damage:
        typer.echo(visible(f"left out: {problem}"), err=True)
    what = "episodes" if format in EPISODES else "records"
    if json:
        print_json({"file": str(out), "format": format, what: count, "left_out": damage})
    else:
        console().print(f"{count} {what} written to {out}", soft_wrap=True)


def import_(
    format: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help=f"A data set: {', '.join(LAYOUTS)}. An export of whole episodes: {', '.join(EPISODES)}.",
        ),
    ],
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="The file, or a folder of JSON and JSONL files."),
    ],
    out: Annotated[Path, typer.Option(file_okay=False, help="The store to write, for recipes to name.")],
    images: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="The folder from which images are named (default: that of the source)."),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="What points count: 0..1, 0..1000, pixels (of the image), stated (of the size in the record), "
            "WIDTHxHEIGHT, or a policy format whose model resizes images. Default: detected, or an error."
        ),
    ] = None,
    boxes: Annotated[str | None, typer.Option(help="xywh or xyxy. Default: detected, or an error.")] = None,
    answers: Annotated[
        str | None,
        typer.Option(
            help="How answers are written: pyautogui, point, or a policy format. Default: detected, or an error."
        ),
    ] = None,
    thoughts: Annotated[
        str, typer.Option(help="Words beside the action: full, short (one sentence) or none.")
    ] = "full",
    max_bad: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="The share of bad records from which on the import fails.")
    ] = 0.02,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many episodes, to try it out.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help=f"Write a page of samples into the store: {CHECK_PAGE}.")
    ] = False,
    samples: SamplesOption = 24,
    policy_format: PolicyFormatOption = "json",
    json: JsonOption = False,
) -> None:
    """Bring a data set, or exported episodes, into a store. After any interruption the same command goes on.

    Every record is checked; those that are bad are counted, named and left out.
    """
    choose("FORMAT", format, (*LAYOUTS, *EPISODES))
    if not source.exists():
        raise Misuse(f"there is no file or folder {source}")
    with misuse(ValueError):
        words = _policy_format(policy_format)
    written: dict[str, str] = {}
    if format in EPISODES:
        told = _import_episodes(format, source, out, images, quiet=json)
    else:
        from holotron.episodes.datasets.records import DatasetError
        from holotron.episodes.datasets.settings import ImportSettings

        form: Any = boxes  # checked there
        with misuse(DatasetError):
            settings = ImportSettings(format, source, images, space, form, answers, thoughts, max_bad, limit)
        try:
            told = _import_dataset(settings, out, quiet=json)
        except DatasetError as error:
            if not (check and (out / "import.json").exists()):
                raise
            # That too much is bad is best seen on the page.
            raise DatasetError(f"{error} (look at {_write_page(out, out / CHECK_PAGE, words, samples)})") from error
    if check:
        written = {"page": _write_page(out, out / CHECK_PAGE, words, samples)}
    if json:
        print_json(told | written)
    elif check:
        console().print(f"look at {out / CHECK_PAGE}", soft_wrap=True)


def _import_episodes(format: str, file: Path, out: Path, images: Path | None, quiet: bool) -> dict[str, Any]:
    if not file.is_file():
        raise Misuse(f"{file} is a folder; an export of episodes is a file")
    from holotron.episodes.store import EpisodeStore
    from holotron.episodes.transfer import import_ as read

    named = None if images is None else EpisodeStore(existing(images)).images
    with passing_progress("episodes") as update:
        imported = read(file, _watched(out, update), format, images=named)  # type: ignore[arg-type]
    if not quiet:
        console().print(f"{len(imported)} episodes brought into {out}", soft_wrap=True)
    return {"store": str(out), "imported": imported}


def _import_dataset(settings: ImportSettings, out: Path, quiet: bool) -> dict[str, Any]:
    from holotron.episodes.datasets.importer import import_dataset

    with passing_progress("episodes") as update:
        report = import_dataset(settings, out, lambda so_far: update(completed=so_far.episodes))
    if not quiet:
        _tell(report, out)
    return {"store": str(out), **report.to_dict()}


def _tell(report: ImportReport, out: Path) -> None:
    """What came in, in which space, and what did not."""
    known = {name: report.settings[name] for name in ("space", "boxes", "answers") if report.settings[name]}
    ways = ", ".join(f"{name} {value}{' (detected)' * (name in report.detected)}" for name, value in known.items())
    lines = [f"{report.episodes} episodes with {report.steps} steps in {out}; {ways}"]
    lines += [f"already there: {report.already}"] * bool(report.already)
    lines += [f"cut at an action that there are no words for: {report.cut}"] * bool(report.cut)
    lines += [f"duplicates left out: {report.duplicates}"] * bool(report.duplicates)
    for counts, what in ((report.unsupported, "left out"), (report.bad, "bad")):
        for kind, count in counts.most_common():
            lines.append(f"{what}: {count} × {kind}, such as {report.examples[kind][0]}")
    for line in lines:
        console().print(visible(line), soft_wrap=True, markup=False)


def check(
    store: StoreArgument,
    page: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="FILE.html", help="Write a page of samples to look at.")
    ] = None,
    samples: SamplesOption = 24,
    policy_format: PolicyFormatOption = "json",
    json: JsonOption = False,
) -> None:
    """Read everything in a store and list what is damaged or missing; with --page, draw samples of it."""
    with misuse(ValueError):
        words = _policy_format(policy_format)
    with passing_progress("episodes") as update:
        opened = _watched(existing(store), update)
        infos = opened.list_episodes(on_damage=lambda _: None)  # check() tells about these
        update(total=len(infos))
        problems = opened.check()
    unfinished = sum(not info.finished for info in infos)
    written = {} if page is None else {"page": _write_page(store, page, words, samples)}
    if json:
        print_json({"episodes": len(infos), "unfinished": unfinished, "problems": problems, **written})
    else:
        for problem in problems:
            console().print(visible(problem), soft_wrap=True, markup=False)
        typer.echo(f"{len(infos)} episodes, {unfinished} unfinished, {len(problems)} problems")
        if page is not None:
            console().print(f"look at {page}", soft_wrap=True)
    raise typer.Exit(FAILED if problems else DONE)


def existing(folder: Path) -> Path:
    """The folder, if it is a store; else Misuse."""
    if not (folder / "episodes").is_dir():
        raise Misuse(f"{folder} is no store of episodes; it has no folder 'episodes'")
    return folder


def _policy_format(spec: str) -> Any:
    from holotron.agent.policy_format import find_format

    return find_format(spec)


def _write_page(store: Path, page: Path, words: Any, samples: int) -> str:
    from holotron.episodes.store import EpisodeStore
    from holotron.web.samples import write_samples

    if not page.absolute().parent.is_dir():
        raise Misuse(f"{page} cannot be written: its folder is not there")
    write_samples(EpisodeStore(store), page, words, samples)
    return str(page)


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
