"""`holotron plan train`: what a training step needs, and which options to set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holotron.cli.errors import misuse
from holotron.cli.output import JsonOption, billions, console, examples, plain_table, print_json, print_wrapped, size
from holotron.cli.plan import find_model
from holotron.model.errors import ImageError
from holotron.plan.errors import PlanError
from holotron.plan.gpus import GPUS, gpu
from holotron.plan.workload import parse_size

if TYPE_CHECKING:
    from holotron.train.plan import TrainingPlan

EXAMPLES = examples(
    "holotron plan train holotron-12b --gpu H100 --gpus 8 --tokens 32768",
    "holotron plan train holotron-12b --gpu H200 --tokens 32768 --lora 16 --json",
)
PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimiser",
    "average": "average of the weights",
    "gathered": "weights of other GPUs, gathered",
    "activations": "activations that are kept",
    "working": "the layer in hand",
    "logits": "logits",
    "images": "images and tower",
}


def plan_train(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A name from `holotron models`, or a folder with a config.json.")
    ],
    gpu_name: Annotated[str, typer.Option("--gpu", help=f"One of {', '.join(GPUS)}.")] = "H100",
    gpus: Annotated[int, typer.Option(help="GPUs that share the model, each with a batch of its own.")] = 1,
    tokens: Annotated[int, typer.Option(help="Tokens of a batch.")] = 32768,
    lora: Annotated[int, typer.Option(min=0, help="Rank of low-rank changes; 0 trains everything.")] = 0,
    train_tower: Annotated[
        bool, typer.Option("--train-tower", help="With --lora: tower and projector have changes, too.")
    ] = False,
    recompute: Annotated[
        str | None, typer.Option(help="none, selective, half, mamba or full; default: what keeps the most and fits.")
    ] = None,
    frozen: Annotated[
        list[str] | None, typer.Option(help="A part that does not learn: vision, projector, decoder.")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="adamw or muon.")] = "adamw",
    average: Annotated[bool, typer.Option(help="Keep an average of the weights.")] = True,
    screen: Annotated[str, typer.Option(help="Size of the screenshots, WIDTHxHEIGHT.")] = "1920x1080",
    text_only: Annotated[bool, typer.Option("--text-only", help="No screenshots.")] = False,
    json: JsonOption = False,
) -> None:
    """Work out the memory and the time of a training step, what fits, and what to write into a recipe."""
    from holotron.train.lora import all_targets
    from holotron.train.plan import TrainingPlan, TrainingSetup, planned_recipe, suggestions
    from holotron.train.recipe import RecipeError

    with misuse(PlanError, ImageError, RecipeError, ValueError):
        config = find_model(model)
        if train_tower and not (lora and config.vision):
            raise PlanError("--train-tower goes with --lora and a model that sees; without --lora everything learns")
        recipe = planned_recipe(
            model,
            lora=lora,
            targets=all_targets(config) if train_tower else (),
            frozen=tuple(frozen or ()),
            recompute=recompute or "full",
            optimizer=optimizer,
            average=0.999 if average else 0.0,
        )
        setup = TrainingSetup(recipe, tokens, gpus, parse_size("--screen", screen), text_only)
        chosen = TrainingPlan(config, gpu(gpu_name), setup)
        fitting, ways = suggestions(chosen)
    if recompute is None and fitting is not None:
        chosen = fitting
    if json:
        best = None if fitting is None else fitting.recipe_lines()
        print_json(chosen.to_dict() | {"recipe": best, "ways": ways})
    else:
        _print(chosen, fitting, ways)


def _print(plan: TrainingPlan, fitting: TrainingPlan | None, ways: list[str]) -> None:
    told, out = plan.to_dict(), console()
    setup, memory, seconds = plan.setup, told["memory_bytes"], told["seconds"]
    learns = f"rank {told['lora']}" if told["lora"] else "everything"
    learns += ", tower included" if setup.recipe.lora.targets else ""
    learns += f" but {', '.join(told['frozen'])}" if told["frozen"] else ""
    out.print(f"{plan.config.name} on {setup.gpus} × {plan.gpu.name}, {setup.tokens:,} tokens a batch", style="bold")
    print_wrapped(
        f"{billions(told['parameters'])} parameters, {billions(told['learned_parameters'])} learn ({learns}); "
        f"recompute {told['recompute']}, {told['optimizer']}.",
        style="dim",
    )
    table = plain_table("memory of each GPU", "")
    for key, name in PARTS.items():
        if memory[key]:
            table.add_row(name, size(memory[key]))
    table.add_row("together", size(memory["allocated"]))
    table.add_row("room for it", size(memory["room"]))
    table.add_section()
    for key in ("products", "recomputed", "between", "optimizer", "messages", "total"):
        table.add_row(f"seconds, {key}", f"{seconds[key]:.2f}")
    table.add_row("tokens a second", f"{told['tokens_per_second']:,.0f}")
    table.add_row("share of the peak", f"{100 * told['share_of_peak']:.0f}%")
    out.print(table)
    if fitting is None:
        print_wrapped(f"It does not fit. What would: {'; '.join(ways) or 'a smaller model'}.", style="yellow")
        return
    verdict = (
        "It fits." if plan.fits else f'It does not fit; with recompute = "{fitting.setup.recipe.recompute}" it does.'
    )
    print_wrapped(f"{verdict} In a recipe:", style="green" if plan.fits else "yellow")
    for line in fitting.recipe_lines():
        out.print(line, markup=False)
