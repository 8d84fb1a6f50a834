"""`holotron eval grounding|reading`: what a policy sees, on generated screens and on published benchmarks."""

from __future__ import annotations

import asyncio
import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holotron.cli.errors import Misuse, misuse
from holotron.cli.output import JsonOption, console, examples, plain_table, print_json
from holotron.cli.policies import (
    BUNDLED,
    Chosen,
    DeviceOption,
    EndpointOption,
    FormatOption,
    MaxTokensOption,
    ModelOption,
    NameOption,
    WorkersOption,
    agent_failures,
    opened,
)
from holotron.cli.process_registry import registered
from holotron.cli.progress import passing_progress

if TYPE_CHECKING:
    from holotron.eval.grounding_run import GroundingRun

BENCHMARKS = ("screenspot", "screenspot-v2", "screenspot-pro")
GROUNDING_EXAMPLES = examples(
    "holotron eval grounding",
    "holotron eval grounding runs/localization/weights --screens 50 --sources pages,widgets --out grounding.json",
    "holotron eval grounding screenspot-v2 --data ScreenSpot-v2 --endpoint http://127.0.0.1:8000/v1 --sessions 32",
    "holotron eval grounding screenspot-pro --data ScreenSpot-Pro --model ./Holo2-8B --out runs/pro",
)
READING_EXAMPLES = examples(
    "holotron eval reading",
    "holotron eval reading runs/localization/weights --screens 50 --sources pages,widgets --out reading.json",
)
SourcesOption = Annotated[str | None, typer.Option(help="widgets, miniwob, pages, packages; default: all.")]
AtOnceOption = Annotated[int, typer.Option(min=1, max=64, help="Screens of each process.")]
MISSES = "misses.html"


def reading(
    model: Annotated[str, typer.Argument(help="A small policy: the bundled one, or a checkpoint folder.")] = BUNDLED,
    screens: Annotated[int, typer.Option(min=1, help="Of each source; three questions each.")] = 100,
    sources: SourcesOption = None,
    device: DeviceOption = None,
    workers: WorkersOption = 1,
    at_once: AtOnceOption = 4,
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="File for the whole report as JSON.")] = None,
) -> None:
    """What it reads at a place of a screen it has never seen: whole texts, and characters."""
    _ask_screens("reading", model, screens, sources, device, workers, at_once, out)


def grounding(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[BENCHMARK|MODEL]",
            help=f"A benchmark ({', '.join(BENCHMARKS)}), with --data; or a small policy, for generated screens.",
        ),
    ] = BUNDLED,
    data: Annotated[Path | None, typer.Option(help="The benchmark's folder, or one of its files.")] = None,
    images: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where its images are (default: in its folder, or in images/).")
    ] = None,
    model: ModelOption = None,
    endpoint: EndpointOption = None,
    name: NameOption = None,
    format_: FormatOption = None,
    sessions: Annotated[int, typer.Option(min=1, max=512, help="Items asked at once.")] = 16,
    space: Annotated[str | None, typer.Option(help="Of boxes: pixels, 0..1, …; default: detected.")] = None,
    boxes: Annotated[str | None, typer.Option(help="xywh or xyxy; default: detected.")] = None,
    max_bad: Annotated[float, typer.Option(min=0.0, max=0.99, help="Share of items that may be missing.")] = 0.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first items, to try it out.")] = None,
    max_tokens: MaxTokensOption = 128,
    screens: Annotated[int, typer.Option(min=1, help="Generated ones, of each source; four questions each.")] = 100,
    sources: SourcesOption = None,
    device: DeviceOption = None,
    workers: WorkersOption = 1,
    at_once: AtOnceOption = 4,
    out: Annotated[
        Path | None,
        typer.Option(help="Of a benchmark, the run's folder, where it goes on; else the report's file."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Where it points when asked for an element: published benchmarks, or screens it has never seen."""
    if what not in BENCHMARKS:
        if data is not None:
            raise Misuse(f"there is no benchmark {what!r}; choose one of {', '.join(BENCHMARKS)}")
        _ask_screens("grounding", what, screens, sources, device, workers, at_once, out)
        return
    if data is None:
        raise Misuse(f"{what} is read from --data DIR, its folder as it was published")
    from holotron.episodes.datasets.pictures import SourcePictures
    from holotron.episodes.datasets.records import DatasetError
    from holotron.episodes.datasets.settings import ImportSettings
    from holotron.eval.benchmarks import BENCHMARKS as KNOWN
    from holotron.eval.benchmarks import load_benchmark
    from holotron.eval.grounding_run import GroundingRun, localizer_of

    chosen = Chosen(model, False, endpoint, name, format_)
    form: Any = boxes  # checked there
    with misuse(DatasetError):
        settings = ImportSettings("screenspot", data, images, space, form, most_bad=max_bad, limit=limit)
    pictures = SourcePictures()
    loaded = load_benchmark(KNOWN[what], settings, pictures)
    with agent_failures():
        policy_format = chosen.policy_format()
    label = chosen.label.rstrip("/").rsplit("/", 1)[-1]
    folder = out or Path("runs") / f"{what}-{label}"
    run = GroundingRun(KNOWN[what], loaded, localizer_of(policy_format), folder, chosen.label, sessions)
    with misuse(DatasetError):
        run.claim()

    async def main() -> None:
        with passing_progress(what) as update:
            async with opened(chosen, run.localizer.options(max_tokens), device) as acting:
                await run.infer(acting, pictures, lambda done, total: update(completed=done, total=total))

    if len(run.answers()) < len(loaded.items):
        with registered("eval"), agent_failures():
            asyncio.run(main())
    verdicts = run.judge()
    report = run.metric(verdicts)
    _write_misses(run, report, {verdict["id"]: verdict for verdict in verdicts}, pictures)
    if json:
        print_json(report)
    else:
        _print(report, folder)


def _write_misses(run: GroundingRun, report: dict[str, Any], verdicts: dict[str, Any], pictures: Any) -> None:
    from holotron.web.samples import Miss, write_misses

    verdicts = {
        line["id"]: line for line in map(json_text.loads, (run.folder / "verdicts.jsonl").read_text().splitlines())
    }
    said = run.answers()
    missed = [item for item in run.loaded.items if verdicts[item.id]["verdict"] != "correct"]
    shown = (
        Miss(
            pictures.read(item.images, item.image).png,
            item.instruction,
            said[item.id]["text"],
            verdicts[item.id]["point"],
            item.box,
            f"{item.cell}, {item.id}",
        )
        for item in missed[:: 1 + len(missed) // 60]
    )
    write_misses(run.folder / MISSES, f"{report['benchmark']}, {report['policy']}", report, shown)


def _print(report: dict[str, Any], folder: Path) -> None:
    table = plain_table("", "right", "of", "accuracy", "95%")
    for name, part in (*report["by_cell"].items(), *report["by_group"].items(), ("all", report)):
        low, high = part["interval"]
        rate = f"{100 * part['accuracy']:.1f}%"
        table.add_row(name, str(part["correct"]), str(part["of"]), rate, f"{100 * low:.1f}–{100 * high:.1f}")
    console().print(table)
    lines = [f"mean of the cells {100 * report['mean_of_cells']:.1f}%; {report['wrong_format']} answers were no point"]
    if report["items"] != report["published_items"]:
        lines.append(f"{report['items']} items; {report['published_items']} were published: not the whole benchmark")
    lines += [f"left out: {problem}" for problem in report["left_out"][:5]]
    lines.append("published: " + ", ".join(f"{name} {score}" for name, score in report["published"].items()))
    lines.append(f"misses: {folder / MISSES}")
    for line in lines:
        console().print(line, soft_wrap=True, markup=False)


def _ask_screens(
    name: str,
    model: str,
    screens: int,
    sources: str | None,
    device: str | None,
    workers: int,
    at_once: int,
    out: Path | None,
) -> None:
    from holotron.eval.grounding import GROUNDING
    from holotron.eval.reading import READING
    from holotron.eval.screens import evaluate_screens, report_text
    from holotron.model.errors import ModelError
    from holotron.model.loading import find_checkpoint
    from holotron.suites.screens.sources import SOURCES

    chosen = [part.strip() for part in (sources or "").split(",") if part.strip()] or list(SOURCES)
    if unknown := sorted(set(chosen) - set(SOURCES)):
        raise Misuse(f"there is no source {', '.join(unknown)}; known are {', '.join(SOURCES)}")
    with misuse(ModelError):
        find_checkpoint(model)
    kind: Any = GROUNDING if name == "grounding" else READING
    with registered("eval"), agent_failures():
        found = evaluate_screens(kind, model, screens, chosen, device=device, workers=workers, at_once=at_once)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json_text.dumps(found), encoding="utf-8")
    typer.echo(report_text(found))
