"""`holotron train`: make a policy better by a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holotron.cli.errors import MISUSED, failure, misuse
from holotron.cli.output import examples

app = typer.Typer(help="Train a policy.", rich_markup_mode="rich")
EXAMPLES = examples(
    "holotron train sft recipes/localization.toml --out runs/localization",
    "holotron train sft recipes/navigation.toml --out runs/navigation",
)


@app.callback(invoke_without_command=True)
def _train(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(MISUSED)


@app.command("sft", epilog=EXAMPLES)
def sft(
    recipe: Annotated[Path, typer.Argument(help="A TOML file; see recipes/.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; a second start goes on from its last state.")],
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: cuda where there is one.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's.")] = None,
) -> None:
    """A supervised stage, localization or navigation. Ctrl-C keeps the state; the same command goes on from it."""
    from holotron.data.samples import SampleError
    from holotron.model.errors import ModelError
    from holotron.train.__main__ import tell
    from holotron.train.recipe import RecipeError, read_recipe
    from holotron.train.sft import Interrupted, Trainer, TrainingError

    with misuse(RecipeError):
        wanted = read_recipe(recipe, **({} if steps is None else {"steps": steps}))
    with failure(TrainingError, Interrupted, SampleError, ModelError):
        folder = Trainer(wanted, out, device).run(tell)
    typer.echo(f"trained; try it with: holotron demo --model {folder}")
