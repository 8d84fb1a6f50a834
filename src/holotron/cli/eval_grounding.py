"""`holotron eval grounding`: where a policy points, on published benchmarks and on generated screens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holotron.cli import policies
from holotron.cli.errors import Misuse, misuse
from holotron.cli.eval_screens import AtOnceOption, SourcesOption, ask_screens
from holotron.cli.output import JsonOption, console, examples, plain_table, print_json
from holotron.cli.policies import BUNDLED, Chosen, agent_failures, opened
from holotron.cli.process_registry import registered
from holotron.cli.progress import passing_progress

if TYPE_CHECKING:
    from holotron.episodes.datasets.pictures import SourcePictures
    from holotron.eval.grounding_run import GroundingRun
    from holotron.eval.targets import Target

BENCHMARKS = (
    "screenspot", "screenspot-v2", "screenspot-pro", "osworld-g", "osworld-g-refined", "groundui-1k", "webclick",
    "showdown-clicks", "ui-vision", "ui-vision-layout",
)  # fmt: skip
GROUNDING_EXAMPLES = examples(
    "holotron eval grounding",
    "holotron eval grounding runs/localization/weights --screens 50 --sources pages,widgets --out grounding.json",
    "holotron eval grounding --sources miniwob --heights 210,300,400 --screens 50",
    "holotron eval grounding screenspot-v2 --data hub --endpoint http://127.0.0.1:8000/v1 --sessions 32",
    "holotron eval grounding screenspot-pro --data ScreenSpot-Pro --model ./Holo2-8B --zoom 0.5 --out runs/pro",
    "holotron eval grounding osworld-g --data OSWorld-G/benchmark --refusals --endpoint http://127.0.0.1:8000/v1",
)
HUB = "hub"
FETCHED = Path("runs") / "benchmarks"
MISSES, MOST_MISSES = "misses.html", 60
MEANS = {"iou": "IoU", "precision": "precision", "recall": "recall"}


def grounding(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[BENCHMARK|MODEL]",
            help=f"A benchmark ({', '.join(BENCHMARKS)}), with --data; or a small policy, for generated screens.",
        ),
    ] = BUNDLED,
    data: Annotated[
        str | None,
        typer.Option(help=f"The benchmark's folder or one of its files; hub: fetched to {FETCHED}."),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where its images are (default: in its folder, or in images/).")
    ] = None,
    model: policies.ModelOption = None,
    endpoint: policies.EndpointOption = None,
    name: policies.NameOption = None,
    format_: policies.FormatOption = None,
    sessions: Annotated[int, typer.Option(min=1, max=512, help="Items asked at once.")] = 16,
    zoom: Annotated[
        float | None,
        typer.Option(min=0.05, max=0.95, help="Ask again about so much of each side around the answer, enlarged."),
    ] = None,
    refusals: Annotated[
        bool, typer.Option("--refusals", help="Also items whose element is not there; no grammar is forced then.")
    ] = False,
    space: Annotated[str | None, typer.Option(help="Of boxes: pixels, 0..1, …; default: detected.")] = None,
    boxes: Annotated[str | None, typer.Option(help="xywh or xyxy; default: detected.")] = None,
    max_bad: Annotated[float, typer.Option(min=0.0, max=0.99, help="Share of items that may be missing.")] = 0.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first items, to try it out.")] = None,
    max_tokens: policies.MaxTokensOption = 128,
    screens: Annotated[int, typer.Option(min=1, help="Generated ones, of each source; four questions each.")] = 100,
    sources: SourcesOption = None,
    libraries: policies.LibrariesOption = None,
    heights: Annotated[
        str | None,
        typer.Option(help="Each MiniWoB++ page or widget at so many pixels, white below it, such as 210,300,400."),
    ] = None,
    device: policies.DeviceOption = None,
    workers: policies.WorkersOption = 1,
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
        ask_screens("grounding", what, screens, sources, device, workers, at_once, out, heights)
        return
    if data is None:
        raise Misuse(f"{what} is read from --data DIR, its folder as it was published, or fetched with --data {HUB}")
    from holotron.episodes.datasets.pictures import SourcePictures
    from holotron.episodes.datasets.records import DatasetError
    from holotron.eval.benchmark_files import BenchmarkSource, fetch_benchmark, load_benchmark
    from holotron.eval.benchmarks import BENCHMARKS as KNOWN
    from holotron.eval.grounding_run import GroundingRun, localizer_of
    from holotron.eval.regions import RegionRun

    if KNOWN[what].regions and zoom is not None:
        raise Misuse(f"--zoom is for points, and {what} asks for boxes")
    chosen = Chosen(model, False, endpoint, name, format_)
    form: Any = boxes  # checked there
    with misuse(DatasetError):
        source = BenchmarkSource(Path(data), images, space, form, refusals, max_bad, limit)
    if data == HUB:
        source = replace(source, folder=fetch_benchmark(KNOWN[what], FETCHED / what))
    pictures = SourcePictures()
    loaded = load_benchmark(KNOWN[what], source, pictures)
    with agent_failures():
        policy_format = chosen.policy_format()
    label = chosen.label.rstrip("/").rsplit("/", 1)[-1]
    folder = out or Path("runs") / f"{what}-{label}"
    kind = RegionRun if KNOWN[what].regions else GroundingRun
    run = kind(KNOWN[what], loaded, localizer_of(policy_format), folder, chosen.label, sessions, zoom, refusals)
    with misuse(DatasetError):
        run.claim()

    async def main() -> list[str]:
        with passing_progress(what) as update:
            async with opened(chosen, run.localizer.options(max_tokens), device) as acting:
                return await run.infer(acting, pictures, lambda done, total: update(completed=done, total=total))

    if len(run.answers()) < len(loaded.items):
        with registered("eval"), agent_failures():
            _check_answered(asyncio.run(main()), len(loaded.items), max_bad)
    verdicts = run.judge()
    report = run.metric(verdicts)
    _write_misses(run, report, verdicts, pictures)
    if json:
        print_json(report)
    else:
        _print(report, folder)


def _check_answered(refused: Sequence[str], items: int, max_bad: float) -> None:
    if len(refused) > max_bad * items:
        raise OSError(
            f"the server did not answer {len(refused)} of {items} items, such as {refused[0]}; the others are kept: "
            "run it again to ask only these, or count them as wrong with --max-bad"
        )


def _write_misses(
    run: GroundingRun, report: dict[str, Any], verdicts: list[dict[str, Any]], pictures: SourcePictures
) -> None:
    from holotron.web.samples import Miss, write_misses

    said = run.answers()
    missed = [pair for pair in zip(run.loaded.items, verdicts, strict=True) if pair[1]["verdict"] != "correct"]
    shown = (
        Miss(
            pictures.read(item.images, item.image).png,
            item.instruction,
            _said(said.get(item.id)),
            verdict["point"],
            _outline(item.target),
            f"{', '.join(group for groups in item.groups.values() for group in groups)} · {item.id}",
        )
        for item, verdict in missed[:: -(-len(missed) // MOST_MISSES) or 1]
    )
    write_misses(run.folder / MISSES, f"{report['benchmark']}, {report['policy']}", report, shown)


def _said(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "(no answer)"
    if "crop" not in answer:
        return str(answer["text"])
    return f"{answer['first']}\n\nagain, shown {answer['crop']}:\n{answer['text']}"


def _outline(target: Target) -> Sequence[tuple[float, float]]:
    from holotron.eval.targets import BoxTarget, PolygonTarget

    if isinstance(target, PolygonTarget):
        return target.corners
    if not isinstance(target, BoxTarget):
        return ()
    left, top, right, bottom = target.box
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _print(report: dict[str, Any], folder: Path) -> None:
    table = plain_table("", "right", "of", "accuracy", "95%")
    parts = [part for key, parts in report.items() if key.startswith("by_") for part in parts.items()]
    for name, part in (*parts, ("all", report)):
        low, high = part["interval"]
        rate = f"{100 * part['accuracy']:.1f}%"
        table.add_row(name, str(part["correct"]), str(part["of"]), rate, f"{100 * low:.1f}–{100 * high:.1f}")
    console().print(table)
    lines = [f"{report['wrong_format']} answers were no {'box' if 'mean_iou' in report else 'point'}"]
    if "mean_iou" in report:
        means = (f"{name} {100 * report[f'mean_{key}']:.1f}%" for key, name in MEANS.items())
        lines.insert(0, f"mean {', '.join(means)}; right is an IoU of 0.5 and more")
    if report["mean"] is not None:
        lines[-1] = f"mean over groups {100 * report['mean']:.1f}%; {lines[-1]}"
    if report["items"] != report["published_items"] is not None:
        lines.append(f"{report['items']} items; {report['published_items']} were published: not the whole benchmark")
    if report["refusals_left_out"]:
        lines.append(
            f"{report['refusals_left_out']} items whose element is not there are left out (--refusals asks them)"
        )
    if report["duplicates"]:
        lines.append(f"{report['duplicates']} items are there twice, as published")
    lines += [f"left out: {problem}" for problem in report["left_out"][:5]]
    published = ", ".join(f"{each['model']} {each['score']:g}" for each in report["published"])
    lines += [f"published: {published}"] if published else []
    lines.append(f"misses: {folder / MISSES}")
    for line in lines:
        console().print(line, soft_wrap=True, markup=False)
