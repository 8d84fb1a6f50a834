"""What a user watches while a run goes on: losses by suite, other places for figures, and a suite that is played."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holotron.model.loading import load
from holotron.train import sinks, suite_evaluation
from holotron.train.batches import BatchBudget
from holotron.train.meter import Progress, TrainingError
from holotron.train.recipe import DataSource, Recipe, RecipeError
from holotron.train.sft import Trainer
from holotron.train.suite_evaluation import EvalConfig

from .samples import CONFIG, write_start


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("watching")
    write_start(folder)
    return Recipe(
        name="squares",
        stage="localization",
        start=str(folder / "start"),
        steps=2,
        data=tuple(DataSource(shards=str(folder / name)) for name in ("data", "written")),
        dtype="float32",
        workers=0,
        log_every=1,
        batch=BatchBudget(tokens=512, patches=384, learned=128, sequences=16, images=16),
    )


class Noting:
    """A sink that notes what it is given."""

    def __init__(self, out: Path, name: str, recipe: Mapping[str, Any]) -> None:
        self.given: list[tuple[int, dict[str, float]]] = []
        self.closed = False

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        self.given.append((step, dict(figures)))

    def close(self) -> None:
        self.closed = True


def test_losses_are_told_by_suite_and_go_to_sinks(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "find_spec", lambda _: True)
    monkeypatch.setitem(sinks.SINKS, "wandb", Noting)
    told: list[Progress] = []
    trainer = Trainer(replace(recipe, sinks=("wandb",)), tmp_path, "cpu")
    trainer.run(told.append)
    for progress in told:
        assert progress.loss_by_suite.keys() == {"squares", "written"}
        assert min(progress.loss_by_suite.values()) < progress.loss < max(progress.loss_by_suite.values())
    (sink,) = trainer.sinks
    assert isinstance(sink, Noting)
    assert sink.closed
    assert [step for step, _ in sink.given] == [1, 2]
    assert sink.given[0][1]["loss_by_suite/written"] == told[0].loss_by_suite["written"]
    assert sink.given[0][1]["gradient"] == told[0].gradient
    # They may come and go: the run is the same.
    assert Trainer(recipe, tmp_path, "cpu").run() == tmp_path / "weights"


def test_a_sink_whose_package_is_missing_names_the_extra(recipe: Recipe, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sinks, "find_spec", lambda _: None)
    with pytest.raises(TrainingError, match=r"'tensorboard', whose package .* pip install 'holotron\[tensorboard\]'"):
        Trainer(replace(recipe, sinks=("tensorboard",)), tmp_path, "cpu")
    with pytest.raises(RecipeError, match="sinks has 'mlflow'; known are tensorboard, wandb"):
        replace(recipe, sinks=("mlflow",))


def test_tensorboard_reads_what_was_written(recipe: Recipe, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told: list[Progress] = []
    Trainer(replace(recipe, sinks=("tensorboard",)), tmp_path, "cpu").run(told.append)
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert [event.step for event in read.Scalars("loss")] == [1, 2]
    assert [event.value for event in read.Scalars("loss")] == pytest.approx([each.loss for each in told], rel=1e-6)
    assert "loss_by_suite/written" in read.Tags()["scalars"]


def test_wandb_works_without_a_network(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    Trainer(replace(recipe, sinks=("wandb",)), tmp_path, "cpu").run()
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))


# Stands for `holotron eval`: it looks at the weights it is given, and says how good they are.
EVALUATOR = """
import json, pathlib, sys
words = sys.argv[1:]
if "fail" in words:
    sys.exit("no browser")
assert (pathlib.Path(words[words.index("--model") + 1]) / "config.json").exists()
print(json.dumps({"suite": words[0], "success_rate": 0.5, "episodes": 2, "words": words}))
"""


@pytest.mark.skipif(os.name != "posix", reason="a program of its own")
def test_a_suite_is_played_by_the_weights_of_now(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    program = tmp_path / "evaluator.py"
    program.write_text(EVALUATOR)
    monkeypatch.setattr(suite_evaluation, "PROGRAM", (sys.executable, str(program)))
    asked = replace(recipe, eval=EvalConfig("miniwob", 1, ("--tasks", "click-test")))
    Trainer(asked, tmp_path / "run", "cpu").run()
    lines = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    expected = {"suite": "miniwob", "success_rate": 0.5, "episodes": 2}
    assert lines == [expected | {"step": step} for step in (1, 2)]
    assert "miniwob with the weights of step 2: 50.0% of 2 episodes solved" in capsys.readouterr().err
    report = json.loads((tmp_path / "run" / "eval" / "step-2" / "report.json").read_text())
    assert report["words"][:3] == ["miniwob", "--tasks", "click-test"]
    assert load(tmp_path / "run" / "eval" / "weights").config.pattern == CONFIG.pattern
    # One that fails is told about, and the run goes on.
    Trainer(replace(asked, eval=EvalConfig("miniwob", 2, ("fail",))), tmp_path / "failing", "cpu").run()
    (line,) = (tmp_path / "failing" / "evaluations.jsonl").read_text().splitlines()
    assert json.loads(line)["error"] == "holotron eval ended with 1: no browser"
    with pytest.raises(ValueError, match="eval needs both"):
        EvalConfig("miniwob")
