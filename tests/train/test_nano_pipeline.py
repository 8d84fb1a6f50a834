"""The pipelines of the small policy are complete: their commands exist, and each reads what an earlier one makes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from holotron.cli.main import app
from holotron.train.pipeline import Pipeline, PipelineStep, read_pipeline
from holotron.train.recipe import Recipe, read_recipe
from holotron.train.results import fill_card
from holotron.train.rl.config import read_grpo_recipe

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = sorted((ROOT / "pipelines").glob("*.toml"))


@pytest.fixture(scope="module", params=PIPELINES, ids=lambda path: path.stem)
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return read_pipeline(request.param)


def parsed(step: PipelineStep) -> dict[str, Any]:
    """The step's command line as the command would get it; click's error where it has no such option."""
    words = [word if word[0] != "@" else "click-test" for word in shlex.split(step.run)[1:]]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    params: dict[str, Any] = command.make_context(step.name, words).params
    return params


def test_every_command_line_is_understood(pipeline: Pipeline) -> None:
    for step in pipeline.steps:
        given = parsed(step)
        assert str(given["out"]) in step.outputs, step.name
        assert step.seconds, step.name
        if {"seed", "first_seed"} & given.keys():
            assert (given.get("seed") or given.get("first_seed")) < 10**9, "training seeds"
            assert given.get("samples") or given.get("episodes"), "a fixed count"


def test_what_is_read_is_declared_and_made_before(pipeline: Pipeline) -> None:
    made: set[Path] = set()
    for step in pipeline.steps:
        inputs = {(ROOT / path).resolve() for path in step.inputs}
        for path in inputs:
            assert path.is_file() or made & {path, *path.parents}, f"{step.name} reads {path}"
        for word in shlex.split(step.run):
            path = (ROOT / word.lstrip("@").split("=")[-1]).resolve()
            if (path.is_file() or "/" in word) and word not in step.outputs:
                assert any(path in (each, *each.parents) for each in inputs), f"{step.name} does not declare {word}"
        recipes = [path for path in inputs if path.suffix == ".toml"]
        for recipe in map(read_any, recipes):
            sources = {(recipe.folder / source.path).resolve() for source in recipe.data}
            if not recipe.random and recipe.start != "holotron-nano":
                sources.add(Path(recipe.starting_point).resolve())
            assert sources == inputs - set(recipes), step.name
        made |= {(ROOT / path).resolve() for path in step.outputs}


def read_any(path: Path) -> Recipe:
    return read_grpo_recipe(path) if path.name.startswith("grpo-") else read_recipe(path)


def test_every_recipe_is_used() -> None:
    used = {path for pipeline in map(read_pipeline, PIPELINES) for step in pipeline.steps for path in step.inputs}
    assert {f"recipes/{path.name}" for path in (ROOT / "recipes").iterdir()} <= used


def test_switches_are_tried_on_the_recipe_of_the_run() -> None:
    """A switch that the recipe has that way already would show nothing."""
    switches = read_pipeline(ROOT / "pipelines" / "rl-switches.toml")
    steps = [parsed(step) for step in switches.steps if " grpo " in step.run]
    recipe, (plain, *tried) = ROOT / "recipes" / "grpo-miniwob.toml", [step["settings"] for step in steps]
    assert len(tried) == 3
    of_the_run = read_grpo_recipe(recipe, plain)
    assert all(read_grpo_recipe(recipe, settings) != of_the_run for settings in tried)
    assert of_the_run.eval.every <= 100  # the runs of switches are evaluated, too


def test_the_card_has_a_place_for_every_result(pipeline: Pipeline, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text('{"protocols": {"p": {"successes": 1, "episodes": 2, "interval": [0.1, 0.9]}}}')
    given = parsed(next(step for step in pipeline.steps if step.name == "card"))
    text = (ROOT / str(given["template"])).read_text(encoding="utf-8")
    filled = fill_card(text, [(part.split("=")[0], report) for part in given["result"]])
    assert filled.count("| p | 50.0% (10.0 to 90.0) | 2 |") == len(given["result"])
