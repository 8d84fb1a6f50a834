"""A stage learns, stops and goes on bit for bit, and leaves a checkpoint that the engine can load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from holotron.agent.policy_format import NANO, format_of
from holotron.episodes.examples import ExampleError
from holotron.model.checkpoint.config_json import read_config
from holotron.model.loading import load
from holotron.train.batches import BatchBudget, TrainingBatch
from holotron.train.meter import Progress, TrainingError
from holotron.train.optimizer import OptimizerConfig
from holotron.train.recipe import DataSource, Recipe, RecipeError, read_recipe
from holotron.train.sft import Interrupted, Trainer
from holotron.train.state import read_about

from .samples import CONFIG, write_start, write_store

BUDGET = BatchBudget(tokens=512, patches=384, learned=96, sequences=8, images=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of samples, and a checkpoint to start from."""
    made: Path = tmp_path_factory.mktemp("sft")
    write_start(made)
    write_store(made / "store")
    return made


def recipe(folder: Path, **changes: object) -> Recipe:
    made = Recipe(
        name="squares",
        stage="localization",
        start=str(folder / "start"),
        steps=6,
        data=(DataSource(shards=str(folder / "data")),),
        dtype="float32",
        workers=0,
        log_every=2,
        keep_every=2,
        batch=BUDGET,
        optimizer=OptimizerConfig(rate=3e-3, warmup=2, average=0.5),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in trainer.learner.model.named_parameters()} | {
        f"average.{name}": weight.clone() for name, weight in trainer.learner.average.weights.items()
    }


@pytest.mark.parametrize(
    ("kind", "workers", "jitter", "data"),
    [
        ("adamw", 0, 0.0, "shards"),
        ("muon", 0, 5.0, "shards"),
        ("adamw", 2, 5.0, "shards"),
        ("adamw", 0, 5.0, "store"),
        ("adamw", 2, 0.0, "store"),
    ],
)
def test_an_interrupted_run_goes_on_bit_for_bit(
    folder: Path, tmp_path: Path, kind: str, workers: int, jitter: float, data: str
) -> None:
    optimizer = OptimizerConfig(kind=kind, rate=3e-3, warmup=2, average=0.5)  # type: ignore[arg-type]
    asked = recipe(folder, workers=workers, optimizer=optimizer, coordinate_jitter=jitter, log_every=1, keep_every=100)
    if data == "store":
        asked = replace(asked, data=(*asked.data, DataSource(store=str(folder / "store"), weight=3.0)))
    whole = Trainer(asked, tmp_path / "whole", "cpu")
    whole.run()

    first = Trainer(asked, tmp_path / "cut", "cpu")
    with pytest.raises(Interrupted, match="step 3 of 6"):
        first.run(lambda progress: first.stop() if progress.step == 3 else None)
    assert (read_about(tmp_path / "cut") or {})["step"] == 3
    second = Trainer(asked, tmp_path / "cut", "cpu")
    second.run()
    expected, got = weights(whole), weights(second)
    for name, weight in expected.items():
        assert torch.equal(weight, got[name]), name
    assert not all(torch.equal(weight, weights(first)[name]) for name, weight in expected.items())


def test_a_recipe_can_make_pictures_smaller(folder: Path, tmp_path: Path) -> None:
    before = read_config(folder / "start").vision
    assert before is not None
    smaller = before.max_patches // 2
    trainer = Trainer(recipe(folder, steps=1, max_patches=smaller), tmp_path, "cpu")
    assert trainer.learner.model.config.vision == replace(before, max_patches=smaller)
    # What is exported sees as it was taught, and so does whoever goes on from there.
    assert read_config(trainer.run()).vision == replace(before, max_patches=smaller)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_policy_learns_where_to_click(folder: Path, tmp_path: Path, kind: str) -> None:
    asked = recipe(
        folder,
        steps=24,
        log_every=6,
        optimizer=OptimizerConfig(kind=kind, rate=4e-3, warmup=5, average=0.9),  # type: ignore[arg-type]
    )
    told: list[Progress] = []
    out = Trainer(asked, tmp_path / "run", "cpu").run(told.append)
    assert told[-1].loss < 0.75 * told[0].loss
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [6, 12, 18, 24]
    assert load(out).config.pattern == CONFIG.pattern
    assert format_of(out) == NANO, "whoever runs it must ask as it was taught"


def test_a_folder_belongs_to_one_recipe(folder: Path, tmp_path: Path) -> None:
    Trainer(recipe(folder, steps=1), tmp_path, "cpu").run()
    with pytest.raises(TrainingError, match="seed"):
        Trainer(recipe(folder, steps=1, seed=7), tmp_path, "cpu").run()


def test_a_disk_without_room_for_a_state_is_told_before_the_first_step(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(recipe(folder, steps=1), tmp_path, "cpu")
    least = sum(parameter.nbytes for parameter in trainer.learner.model.parameters())
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: real._replace(free=least - 1))
    with pytest.raises(TrainingError, match=r"MiB are free at .*make room"):
        trainer.run()
    assert trainer.step == 0
    monkeypatch.setattr(shutil, "disk_usage", lambda _: real)
    Trainer(recipe(folder, steps=1), tmp_path, "cpu").run()


def test_recipes_name_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    good = 'name="a"\nstage="navigation"\nstart="holotron-nano"\nsteps=5\nrandom=true\n[[data]]\nshards="x"\n'
    path.write_text(good + "[optimizer]\nrate=1e-3\nbetas=[0.9,0.95]\n[batch]\ntokens=128\nlearned=64\n")
    read = read_recipe(path)
    assert read.optimizer.rate == 1e-3
    assert read.batch.tokens == 128
    for text, message in (
        (good.replace("navigation", "dreaming"), "stage is 'dreaming'"),
        (good + "[batch]\ntoken=3\n", "unknown key 'token'"),
        (good + "[batch]\ntokens=128\n", "batch: learned is 8192 and tokens is 128"),
        (good + '[optimizer]\nkind="sgd"\n', "known are 'adamw' and 'muon'"),
        (good.replace("steps=5", 'steps="5"'), "steps is '5'"),
        (good.replace('[[data]]\nshards="x"\n', ""), "data"),
        ("coordinate_jitter=-1.0\n" + good, "coordinate_jitter is -1.0"),
        (good + "[batch]\ntokens=8\nlearned=9\n", "learned is 9 and tokens is 8"),
        ("seconds=3.0\n" + good, "unknown key 'seconds'"),
        (good + "growing=true\n", "unknown key 'growing'"),
        (good + 'store="y"\n', "one of shards"),
        (good + 'tasks=["a"]\n', "tasks is about episodes"),
        (good.replace("shards", "store") + 'actors=["cat"]\n', "actors has 'cat'"),
        (good.replace("shards", "store") + 'tasks="a"\n', "tasks is 'a'; it must be a list"),
        (good.replace("shards", "store") + 'task_weights={a="b"}\n', "task_weights: a is 'b'"),
        ('folder="x"\n' + good, "unknown key 'folder'"),
        ("max_patches=3\n" + good, "max_patches is 3"),
        ("steps=", "cannot be read"),
    ):
        path.write_text(text)
        with pytest.raises(RecipeError, match=message):
            read_recipe(path)


def test_paths_are_seen_from_the_recipes_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    path = tmp_path / "recipes" / "recipe.toml"
    path.write_text(
        'name="a"\nstage="localization"\nstart="../start"\nsteps=1\ndtype="float32"\nworkers=0\n'
        '[[data]]\nshards="../data"\n[batch]\ntokens=512\npatches=384\nlearned=96\nsequences=8\nimages=16\n'
    )
    for name in ("start", "data"):
        (tmp_path / name).symlink_to(folder / name)
    monkeypatch.chdir(folder)  # which has neither ../start nor ../data
    out = Trainer(read_recipe(path), tmp_path / "run", "cpu").run()
    # The run belongs to the recipe wherever both were moved to.
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "recipes").rename(tmp_path / "elsewhere" / "recipes")
    for name in ("start", "data"):
        (tmp_path / "elsewhere" / name).symlink_to(folder / name)
    path = tmp_path / "elsewhere" / "recipes" / "recipe.toml"
    assert Trainer(read_recipe(path), tmp_path / "run", "cpu").run() == out
    path.write_text(path.read_text().replace("../start", "holotron-nano"))
    assert read_recipe(path).starting_point == "holotron-nano"


def test_samples_that_fit_into_no_batch_are_an_error(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(recipe(folder, batch=replace(BUDGET, learned=1)), tmp_path, "cpu")
    with pytest.raises(ExampleError, match=r"none of 1000 examples in a row fits .* make .* \[batch\] larger"):
        trainer.run()


@pytest.mark.parametrize(("keep_every", "workers"), [(100, 0), (1, 2)])
def test_a_loss_that_is_no_number_stops_with_its_batch_kept(
    folder: Path, tmp_path: Path, keep_every: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state that is kept is from before it, however seldom losses are looked at."""
    seen: list[torch.Tensor] = []
    trainer = Trainer(recipe(folder, log_every=4, keep_every=keep_every, workers=workers), tmp_path, "cpu")
    learn = trainer.learner.learn

    def broken(batches: list[TrainingBatch], step: int) -> object:
        seen.append(batches[0].token_ids_T.clone())
        (said, written), gradient = learn(batches, step)
        return (said * (float("nan") if step == 1 else 1.0), written), gradient

    monkeypatch.setattr(trainer.learner, "learn", broken)
    with pytest.raises(TrainingError, match=r"the loss is nan at step 2; .* kept in .*bad-step-2\.0\.pt"):
        trainer.run()
    [kept] = torch.load(tmp_path / "bad-step-2.0.pt", weights_only=True)
    assert torch.equal(kept["token_ids"], seen[1])
    state = read_about(tmp_path)
    assert (state or {})["step"] == 1 if keep_every == 1 else state is None


def test_a_spike_stops_a_run_that_asks_for_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for spike in (0.0, 3.0):
        trainer = Trainer(recipe(folder, log_every=1, spike=spike), tmp_path / str(spike), "cpu")
        learn = trainer.learner.learn

        def jumping(batches: list[TrainingBatch], step: int, learn: Callable[..., Any] = learn) -> object:
            (said, written), gradient = learn(batches, step)
            return (said * (10.0 if step == 3 else 1.0), written), gradient

        monkeypatch.setattr(trainer.learner, "learn", jumping)
        if spike:
            with pytest.raises(TrainingError, match="at step 4"):
                trainer.run()
        else:
            trainer.run()


def test_held_out_examples_are_measured_and_not_learned(folder: Path, tmp_path: Path) -> None:
    plain = Trainer(recipe(folder), tmp_path / "plain", "cpu")
    plain.run()
    held_out = (DataSource(shards=str(folder / "written")),)
    measured = Trainer(recipe(folder, held_out=held_out, held_out_every=2), tmp_path / "measured", "cpu")
    told: list[Progress] = []
    measured.run(told.append)
    assert all(progress.held_out_loss and progress.held_out_loss != progress.loss for progress in told)
    assert told[0].held_out_loss != told[-1].held_out_loss
    for name, weight in weights(plain).items():
        assert torch.equal(weight, weights(measured)[name]), name
