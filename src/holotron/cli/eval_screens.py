"""`holotron eval reading`, and grounding on generated screens: what a small policy sees."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from holotron.cli import policies
from holotron.cli.errors import Misuse, listed, misuse, whole_numbers
from holotron.cli.output import examples
from holotron.cli.policies import BUNDLED, agent_failures
from holotron.cli.process_registry import registered

READING_EXAMPLES = examples(
    "holotron eval reading",
    "holotron eval reading runs/localization/weights --screens 50 --sources pages,widgets --out reading.json",
)
SCREEN_HEIGHT = 210  # of small screens
SourcesOption = Annotated[
    str | None, typer.Option(help="widgets, miniwob, pages, packages (the default: these), libraries.")
]
AtOnceOption = Annotated[int, typer.Option(min=1, max=64, help="Screens of each process.")]


def reading(
    model: Annotated[str, typer.Argument(help="A small policy: the bundled one, or a checkpoint folder.")] = BUNDLED,
    screens: Annotated[int, typer.Option(min=1, help="Of each source; three questions each.")] = 100,
    sources: SourcesOption = None,
    libraries: policies.LibrariesOption = None,
    device: policies.DeviceOption = None,
    workers: policies.WorkersOption = 1,
    at_once: AtOnceOption = 4,
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="File for the whole report as JSON.")] = None,
) -> None:
    """What it reads at a place of a screen it has never seen: whole texts, and characters."""
    ask_screens("reading", model, screens, sources, device, workers, at_once, out)


def ask_screens(
    name: str,
    model: str,
    screens: int,
    sources: str | None,
    device: str | None,
    workers: int,
    at_once: int,
    out: Path | None,
    heights: str | None = None,
) -> None:
    """Ask about generated screens, and print the report."""
    from holotron.eval.grounding import GROUNDING, HEIGHTS
    from holotron.eval.reading import READING
    from holotron.eval.screens import evaluate_screens, report_text
    from holotron.model.errors import ModelError
    from holotron.model.loading import find_checkpoint
    from holotron.suites.screens.generate import DEFAULT_MIX
    from holotron.suites.screens.sources import SOURCES

    chosen = listed(sources) or list(DEFAULT_MIX)
    if unknown := sorted(set(chosen) - set(SOURCES)):
        raise Misuse(f"there is no source {', '.join(unknown)}; known are {', '.join(SOURCES)}")
    with misuse(ModelError):
        find_checkpoint(model)
    kind: Any = GROUNDING if name == "grounding" else READING
    shown = _heights(heights)
    if shown:
        kind, chosen = HEIGHTS, chosen if sources else ["miniwob"]
        if large := sorted(set(chosen) - {"miniwob", "widgets"}):
            raise Misuse(
                f"--heights is about small screens, and {', '.join(large)} is full-size; say --sources miniwob"
            )
    with registered("eval"), agent_failures():
        found = evaluate_screens(
            kind, model, screens, chosen, device=device, workers=workers, at_once=at_once, heights=shown
        )
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json_text.dumps(found), encoding="utf-8")
    typer.echo(report_text(found))


def _heights(text: str | None) -> tuple[int, ...]:
    """Of a screen; none is lower than the screens are."""
    found = whole_numbers("--heights", text)
    if any(height < SCREEN_HEIGHT for height in found):
        raise Misuse(
            f"--heights is {text!r}; say pixels from {SCREEN_HEIGHT} on with commas between, such as 210,300,400"
        )
    return found
