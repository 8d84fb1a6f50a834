"""`holotron train`: make a policy better by a recipe."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holotron.cli.errors import Misuse, failure, misuse
from holotron.cli.output import command_group, examples
from holotron.cli.policies import RayOption, agent_failures, live_play

if TYPE_CHECKING:
    from holotron.train.rl.progress import GrpoProgress

RunFolderOption = Annotated[
    Path, typer.Option(file_okay=False, help="Folder of the run; a second start goes on from its last state.")
]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda; default: cuda where there is one.")]
RecipeArgument = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A TOML file; see recipes/.")]

SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="As optimizer.rate=1e-4, in the recipe's place.")
]

app = command_group("Train a policy.")
EXAMPLES = examples(
    "holotron train sft recipes/localization.toml --out runs/localization",
    "holotron train sft recipes/navigation.toml --out runs/navigation",
)
GRPO_EXAMPLES = examples(
    "holotron train grpo recipes/grpo-miniwob.toml --out runs/grpo",
    "holotron train grpo recipes/grpo-miniwob.toml --out runs/no-replay --set groups.replay=0",
    "holotron train grpo recipes/grpo-miniwob.toml --out runs/grpo --ray auto   # browsers on a cluster's machines",
    "holotron view runs/grpo",
)
INTERPOLATE_EXAMPLES = examples(
    "holotron train interpolate runs/first/weights runs/second/weights --out runs/between",
    "holotron train interpolate holotron-nano runs/mine/weights --share 0.3 --out runs/mostly-nano",
)
HARD_EXAMPLES = examples(
    "holotron train hard-tasks runs/eval --protocol browsergym-125 --at-most 0.8 --out hard-tasks.txt",
)
CARD_EXAMPLES = examples(
    "holotron train card card.md --result miniwob=runs/eval --result stages=runs/navigation --out README.md",
)
PLOT_EXAMPLES = examples(
    "holotron train plot runs/navigation",
    "holotron train plot runs/localization runs/navigation --out stages.svg",
)


@app.command("sft", epilog=EXAMPLES)
def sft(
    recipe: RecipeArgument,
    out: RunFolderOption,
    device: DeviceOption = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
    settings: SetOption = None,
) -> None:
    """A supervised stage, localization or navigation. Ctrl-C keeps the state; the same command goes on from it."""
    from holotron.episodes.examples import ExampleError
    from holotron.model.errors import ModelError
    from holotron.train.__main__ import train
    from holotron.train.meter import TrainingError
    from holotron.train.recipe import RecipeError, read_recipe
    from holotron.train.sft import Interrupted

    with misuse(RecipeError):
        wanted = read_recipe(recipe, settings or (), **({} if steps is None else {"steps": steps}))
    with failure(TrainingError, Interrupted, ExampleError, ModelError):
        folder, _ = train(wanted, out, device)
    typer.echo(f"trained; try it with: holotron demo --model {folder}")
    from holotron.train.plot import PLOT, PlotError, write_plot

    with suppress(PlotError):  # a run of few steps may have noted nothing
        typer.echo(f"how it went: {write_plot([out], out / PLOT)}")


@app.command("grpo", epilog=GRPO_EXAMPLES)
def grpo(
    recipe: RecipeArgument,
    out: RunFolderOption,
    device: DeviceOption = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Iterations, instead of the recipe's.")] = None,
    settings: SetOption = None,
    ray: RayOption = None,
) -> None:
    """Online RL in groups of attempts, over any suite with a verifier. Killed anywhere, the same command goes on."""
    from holotron.episodes.examples import ExampleError
    from holotron.model.errors import ModelError
    from holotron.model.heartbeat import Heartbeat, to_stderr
    from holotron.suites.suite import SuiteError
    from holotron.train.meter import TrainingError
    from holotron.train.recipe import RecipeError
    from holotron.train.rl.config import read_grpo_recipe
    from holotron.train.rl.trainer import GrpoTrainer
    from holotron.train.sft import Interrupted

    with misuse(RecipeError):
        wanted = read_grpo_recipe(recipe, settings or (), **({} if steps is None else {"steps": steps}))
    if ray is not None and wanted.rollout.copies:
        raise Misuse(
            "hosts of a cluster ask one engine, the trainer's: leave out copies, or say --set rollout.copies=0"
        )
    failures = failure(TrainingError, Interrupted, ExampleError, ModelError)
    with (
        agent_failures(),
        failures,
        live_play(ray) as live,
        Heartbeat("preparing the model and the browsers, then the first iteration", to_stderr) as heartbeat,
    ):
        with misuse(SuiteError, ValueError):
            trainer = GrpoTrainer(wanted, out, device, live=live)

        def tell(progress: GrpoProgress) -> None:
            to_stderr(progress.line)
            heartbeat.now("playing and learning")

        folder = trainer.run(tell)
    typer.echo(f"trained; try it with: holotron demo --model {folder}; look at it with: holotron view {out}")


@app.command("interpolate", epilog=INTERPOLATE_EXAMPLES)
def interpolate(
    first: Annotated[str, typer.Argument(help="A checkpoint folder, or the bundled policy.")],
    second: Annotated[str, typer.Argument(help="One that was trained on from it, or beside it from the same start.")],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the weights between them; it must be new or empty.")
    ],
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="How far from the first to the second.")] = 0.5,
) -> None:
    """Weights between two checkpoints: what a second training forgot comes back, and most of what it brought stays."""
    from holotron.model.errors import ModelError
    from holotron.train.interpolate import InterpolationError
    from holotron.train.interpolate import interpolate as between

    with failure(InterpolationError, ModelError):
        folder = between(first, second, out, share)
    typer.echo(f"interpolated; try it with: holotron demo --model {folder}")


@app.command("merge", epilog=examples("holotron train merge BASE runs/mine/adapter --out merged"))
def merge(
    base: Annotated[str, typer.Argument(help="The checkpoint that the adapter is of: a folder, or a name.")],
    adapter: Annotated[Path, typer.Argument(help="A LoRA adapter: a folder as PEFT writes it.", file_okay=False)],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the checkpoint; it must be new or empty.")],
) -> None:
    """Add an adapter to the weights that it is of: a checkpoint like any other, routed experts included."""
    from holotron.model.errors import ModelError
    from holotron.train.lora import merge_adapter

    with failure(ModelError):
        merge_adapter(base, adapter, out)
    typer.echo(f"merged; try it with: holotron serve {out}")


@app.command("pack", epilog=examples("holotron train pack runs/navigation/weights --out weights"))
def pack(
    checkpoint: Annotated[str, typer.Argument(help="A checkpoint folder, or the bundled policy.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the packed weights; it must be new or empty.")],
    bits: Annotated[int, typer.Option(help="8: half the size. 12: three quarters, and short trainings stay.")] = 8,
) -> None:
    """Store a checkpoint's matrices in 8 or 12 bits: unpacked when it is loaded."""
    from holotron.model.checkpoint.writer import save_checkpoint
    from holotron.model.errors import ModelError
    from holotron.model.loading import load

    with failure(ModelError):
        save_checkpoint(load(checkpoint, "cpu"), out, bits=bits)


@app.command("plot", epilog=PLOT_EXAMPLES)
def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or files of their metrics.")],
    out: Annotated[Path | None, typer.Option(help="The SVG; default: training.svg in the first run's folder.")] = None,
    linear: Annotated[bool, typer.Option("--linear", help="Linear axes for loss and gradient, too.")] = False,
) -> None:
    """Draw loss, rate, gradient norm and speed over steps, several runs over each other. A run may still be going."""
    from holotron.train.plot import PLOT, PlotError, write_plot

    first = runs[0] if runs[0].is_dir() else runs[0].parent
    with misuse(PlotError):
        typer.echo(write_plot(runs, out or first / PLOT, linear=linear))


@app.command("hard-tasks", epilog=HARD_EXAMPLES)
def hard_tasks(
    report: Annotated[Path, typer.Argument(metavar="EVAL", help="Folder of an evaluation, or its report.json.")],
    out: Annotated[Path, typer.Option(help="File for the names, one a line.")],
    protocol: Annotated[str, typer.Option(help="Whose figures count.")] = "browsergym-125",
    at_most: Annotated[float, typer.Option(min=0, max=1, help="Share of a task's episodes that were solved.")] = 0.8,
) -> None:
    """List the tasks that a policy does not solve reliably and that have a teacher: what to collect more of."""
    from holotron.suites.suite import find_suite
    from holotron.train.results import ResultsError, read_report
    from holotron.train.results import hard_tasks as hard

    with misuse(ResultsError):
        found = read_report(report)
        taught = set(find_suite(found.get("benchmark", "")).taught())
        names = [name for name in hard(found, protocol, at_most) if name in taught]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    typer.echo(f"{len(names)} tasks are solved in at most {100 * at_most:.0f}% of episodes: {out}")


@app.command("card", epilog=CARD_EXAMPLES)
def card(
    template: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="Markdown with places <!-- results: NAME --> … <!-- end -->."),
    ],
    result: Annotated[
        list[str], typer.Option(metavar="NAME=PATH", help="An evaluation's folder or report, or a run's folder.")
    ],
    out: Annotated[Path, typer.Option(help="The card; it may be the template itself.")],
) -> None:
    """Fill the tables of a model's card from what evaluations and runs have left."""
    from holotron.train.results import ResultsError, fill_card

    given = []
    for part in result:
        name, _, path = part.partition("=")
        if not path:
            raise Misuse(f"--result is {part!r}; write it like miniwob=runs/eval")
        given.append((name, Path(path)))
    with misuse(ResultsError):
        text = fill_card(template.read_text(encoding="utf-8"), given)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    typer.echo(out)
