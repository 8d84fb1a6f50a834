"""`holotron plan`: how many sessions fit on a GPU, and how many agent steps per second it can give."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from holotron.cli.errors import Misuse, misuse
from holotron.cli.output import JsonOption, examples, print_json
from holotron.cli.plan_table import print_plans
from holotron.engine.options import EngineOptions
from holotron.model.config import ModelConfig
from holotron.model.errors import ConfigError, ImageError
from holotron.model.presets import PRESETS, preset
from holotron.plan.efficiency import MEASURED
from holotron.plan.errors import PlanError
from holotron.plan.gpus import GPUS, gpu
from holotron.plan.memory import Precision
from holotron.plan.notes import assumptions, corrections, held_sentence, verdict
from holotron.plan.planner import agents_held
from holotron.plan.planner import plan as make_plan
from holotron.plan.workload import Workload, parse_seconds, parse_size

EXAMPLES = examples(
    "holotron plan holotron-12b --gpu H100 --sessions 100 --steps 20",
    "holotron plan holotron-12b --gpu H200 --weights fp8 --kv fp8 --json",
    "holotron plan holotron-12b --gpu H200 --state 16 --think 4-8 --within 5   # how many agents it holds",
)
NO_COMPARISON = "none"


def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A name from `holotron models`, or a folder with a config.json.")
    ],
    gpu_name: Annotated[str, typer.Option("--gpu", help=f"One of {', '.join(GPUS)}.")] = "H100",
    sessions: Annotated[int, typer.Option(help="Sessions at the same time.")] = 100,
    steps: Annotated[int, typer.Option(help="Steps of an episode.")] = 20,
    screen: Annotated[str, typer.Option(help="Size of a screenshot, WIDTHxHEIGHT.")] = "1920x1080",
    against: Annotated[
        str, typer.Option(help=f"The model to stand beside it, named like MODEL; '{NO_COMPARISON}' for no comparison.")
    ] = "qwen3-8b",
    weights: Annotated[str, typer.Option(help="Layer weights: bf16 or fp8.")] = "bf16",
    kv: Annotated[str, typer.Option(help="KV: bf16 or fp8.")] = "bf16",
    state: Annotated[int, typer.Option(help="Bits of the SSM state: 16 or 32.")] = Precision.state_bits,
    checkpoints: Annotated[
        int, typer.Option(help="States kept per session for going back.")
    ] = EngineOptions.checkpoints,
    text_only: Annotated[
        bool, typer.Option("--text-only", help="Screenshots arrive as text tokens: nothing is paid for seeing.")
    ] = False,
    image_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens of a screenshot.", show_default="what the model's vision tower makes of it"),
    ] = None,
    text_tokens: Annotated[int, typer.Option(help="Text tokens that a step adds.")] = 64,
    generated_tokens: Annotated[int, typer.Option(help="Tokens that a step generates.")] = 128,
    system_tokens: Annotated[int, typer.Option(help="Tokens of the system prompt.")] = 1024,
    think: Annotated[
        str | None, typer.Option(help="Simulate agents that think so many seconds between steps: LOW-HIGH.")
    ] = None,
    within: Annotated[float, typer.Option(min=0.1, help="Seconds that 95% of their steps take at most.")] = 5.0,
    reserve: Annotated[
        float | None,
        typer.Option(help="Share of the GPU kept as workspace.", show_default="10 GiB, as `holotron serve`"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Work out what fits on one GPU and how fast it can go, next to a transformer.

    The speeds are limits: kernels as good as the best measured ones and no idle time between them.
    """
    with misuse(PlanError):
        chosen_gpu = gpu(gpu_name)
        precision = Precision(weights.lower(), kv.lower(), state)
        workload = Workload(
            sessions=sessions,
            steps=steps,
            system_tokens=system_tokens,
            screen=parse_size("--screen", screen),
            image_tokens=image_tokens,
            text_tokens=text_tokens,
            generated_tokens=generated_tokens,
            text_only=text_only,
        )
    config = find_model(model)
    other = None if against.lower() == NO_COMPARISON or against == model else find_model(against)
    # An image error here is about --screen.
    with misuse(PlanError, ImageError):
        planned = partial(make_plan, gpu=chosen_gpu, workload=workload, precision=precision)
        planned = partial(planned, checkpoints=checkpoints, reserve=reserve)
        ours = planned(config, beside=other)
        theirs = planned(other, beside=config) if other is not None else None
        pause = parse_seconds("--think", think) if think else None
    held = [agents_held(each, pause, within) for each in (ours, theirs) if each is not None and pause]
    verdicts = [verdict(each) for each in (ours, theirs) if each is not None]
    assumed = assumptions(ours, theirs)
    corrected = corrections(ours, theirs)
    if json:
        print_json(
            {
                "plan": ours.to_dict(),
                "against": theirs.to_dict() if theirs else None,
                "efficiency": asdict(MEASURED),
                "verdicts": verdicts,
                "assumptions": assumed,
                "corrections": corrected,
                "held": held,
            }
        )
    else:
        print_plans(ours, theirs, [*verdicts, *map(held_sentence, held)], assumed, corrected)


def find_model(name: str) -> ModelConfig:
    """A preset, or else what the config.json of a folder describes."""
    if name not in PRESETS and Path(name).is_dir():
        from holotron.model.checkpoint.config_json import read_config

        return read_config(Path(name))
    try:
        return preset(name).config
    except ConfigError as error:
        raise Misuse(f"{error}; a folder with a config.json will do as well") from error
