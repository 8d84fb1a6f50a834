"""`holotron pipeline`: data, training stages, evaluations and the card, one after another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holotron.cli.errors import misuse
from holotron.cli.output import JsonOption, command_group, console, examples, print_json

app = command_group("Run pipelines: from nothing to measured weights.")
RUN_EXAMPLES = examples(
    "holotron pipeline run pipelines/nano.toml",
    "holotron pipeline run pipelines/nano.toml --from navigation",
)
SHOW_EXAMPLES = examples("holotron pipeline show pipelines/nano.toml")
FileArgument = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, metavar="FILE", help="A TOML file; see pipelines/.")
]


@app.command("run", epilog=RUN_EXAMPLES)
def run(
    file: FileArgument,
    first: Annotated[str | None, typer.Option("--from", help="Run this step and all after it again.")] = None,
    only: Annotated[str | None, typer.Option(help="Run this step again, and no other.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is left, and run nothing.")] = False,
) -> None:
    """Run the steps that are not done. Stopped anywhere, the same command goes on."""
    if dry_run:
        show(file)
        return
    from holotron.train.pipeline import PipelineError, StepFailed, read_pipeline
    from holotron.train.pipeline_run import run_pipeline

    with misuse(PipelineError):
        pipeline = read_pipeline(file)
        try:
            ran = run_pipeline(pipeline, lambda line: typer.echo(line, err=True), first=first, only=only)
        except StepFailed as error:
            typer.echo(error.tail, err=True)
            raise OSError(f"{error}; run the same command again to go on") from error
    typer.echo(f"{pipeline.name}: {ran} steps were run, all {len(pipeline.steps)} are done" if not only else "done")


@app.command("show", epilog=SHOW_EXAMPLES)
def show(file: FileArgument, as_json: JsonOption = False) -> None:
    """Say what is done, what is left and how long it takes."""
    from holotron.train.pipeline import PipelineError, PipelineState, read_pipeline

    with misuse(PipelineError):
        pipeline = read_pipeline(file)
        state = PipelineState.read(pipeline)
        statuses = [state.status(step) for step in pipeline.steps]
    spent = sum(each.seconds or 0.0 for each in statuses if each.done)
    left = [each for each in statuses if not each.done]
    expected = sum(each.seconds or 0.0 for each in left)
    unknown = sum(each.seconds is None for each in left)
    if as_json:
        steps = [
            {"name": each.step.name, "done": each.done, "why": each.why, "seconds": each.seconds} for each in statuses
        ]
        print_json({"name": pipeline.name, "steps": steps, "spent_seconds": spent, "left_seconds": expected})
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("step", "state", "seconds", "command", box=None, pad_edge=False)
    for each in statuses:
        seconds = "?" if each.seconds is None else f"{each.seconds:.0f}" if each.done else f"about {each.seconds:.0f}"
        table.add_row(each.step.name, Text(each.why, style="green" if each.done else ""), seconds, Text(each.step.run))
    out = console()
    out.print(table)
    machine = f" on {pipeline.machine}" if pipeline.machine else ""
    rest = f", and {unknown} steps that nobody timed" if unknown else ""
    out.print(
        f"{len(statuses) - len(left)} of {len(statuses)} steps are done, in {spent:.0f} s; "
        f"left: about {expected:.0f} s{machine}{rest}",
        soft_wrap=True,
    )
