"""Two ranks, each with a part of the model and with data of its own, learn what one process would from all of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from holotron.model.loading import load
from holotron.train import forward, learner
from holotron.train.batches import BatchBudget
from holotron.train.lora import LoraConfig
from holotron.train.meter import Progress, TrainingError
from holotron.train.optimizer import OptimizerConfig
from holotron.train.parallel import Ranks, leave, local, whole
from holotron.train.recipe import DataSource, Recipe, read_recipe
from holotron.train.sft import Interrupted, Trainer

from .samples import CONFIG, write_start

ROOT = Path(__file__).parents[2]
STEPS = 3
RANKS = 2
RUNS = ("adamw", "muon", "lora", "cut", "compiled")


def recipe(folder: Path, run: str) -> Recipe:
    kind = "muon" if run == "muon" else "adamw"
    names = ("data", "written") if run == "muon" else ("data",)
    return Recipe(
        name="squares",
        stage="localization",
        start=str(folder / "start"),
        steps=STEPS,
        data=tuple(DataSource(shards=str(folder / name)) for name in names),
        dtype="float32",
        workers=0,
        log_every=1,
        keep_every=100,
        batch=BatchBudget(tokens=384, patches=256, learned=96, sequences=8, images=16),
        optimizer=OptimizerConfig(kind=kind, rate=1e-3, warmup=2, average=0.5),  # type: ignore[arg-type]
        lora=LoraConfig(rank=4, alpha=8.0) if run == "lora" else LoraConfig(),
        ocr_loss=0.5 if run == "muon" else 0.0,
        compile=run == "compiled",
        recompute="full" if run == "compiled" else "none",
    )


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of Python's, once per rank, as torchrun does it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", *arguments]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)


def program(folder: Path) -> None:
    """What each rank does: every run, and for each a note of what this rank held of it."""
    # Traced and run as a graph; generating C++ from it is PyTorch's business and takes minutes here.
    for module in (forward, learner):
        module.compiled = partial(torch.compile, dynamic=False, backend="aot_eager")  # type: ignore[attr-defined]
    for run in RUNS:
        trainer = Trainer(recipe(folder, run), folder / run, "cpu")
        rank = trainer.ranks.rank
        note: dict[str, Any] = {"stopped": None, "kept": {}, "optimizer": 0, "drawn": []}
        if run == "cut":
            # The first rank alone is told to stop; both must, behind the same step.
            def told(progress: Progress) -> None:
                if progress.step == STEPS // 2:
                    os.kill(os.getpid(), signal.SIGTERM)

            try:
                trainer.run(told)
            except Interrupted:
                note["stopped"] = trainer.step
            if trainer.ranks.first:
                shutil.copytree(folder / run, folder / "left")
            trainer = Trainer(recipe(folder, run), folder / run, "cpu")
        trainer.run()
        for name, parameter in trainer.learner.model.named_parameters():
            note["kept"][name] = (local(parameter).numel(), parameter.numel())
        states = [values for optimizer in trainer.learner.optimizers for values in optimizer.state.values()]
        tensors = [value for values in states for value in values.values() if value.dim()]
        note["optimizer"] = sum(local(value).numel() for value in tensors), sum(value.numel() for value in tensors)
        note["drawn"] = sorted(trainer.cursors)
        (folder / f"{run}.{rank}.json").write_text(json.dumps(note))
        final = {name: whole(p).clone() for name, p in trainer.learner.model.named_parameters()}
        if trainer.ranks.first:
            torch.save(final, folder / f"{run}.pt")
    leave()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("ranks")
    write_start(made)
    ended = launch("-m", "tests.train.test_distributed", str(made))
    assert ended.returncode == 0, ended.stderr[-3000:]
    return made


@pytest.mark.parametrize("run", ["adamw", "muon", "lora"])
def test_ranks_learn_what_one_process_would(folder: Path, run: str, tmp_path: Path) -> None:
    """One process that goes through the batches of both ranks before it takes a step."""
    asked = replace(recipe(folder, run), batches=RANKS)
    begun = Trainer(asked, tmp_path, "cpu").learner.model.state_dict()
    one = Trainer(asked, tmp_path, "cpu")
    learned = [[int(each.batch.weights_N.sum()) for each in next(one.batches())] for _ in range(1)]
    assert learned[0][0] != learned[0][1], "ranks that learn equally much would not show how they are weighed"
    one.run()
    expected = {name: p.detach() for name, p in one.learner.model.named_parameters()}
    got = torch.load(folder / f"{run}.pt", weights_only=True)
    assert got.keys() == expected.keys()
    moved = max(float((weight - begun[name]).abs().max()) for name, weight in expected.items())
    apart = max(float((weight - got[name]).abs().max()) for name, weight in expected.items())
    assert moved > 1e-3
    assert apart < 1e-3 * moved


def test_compiled_and_recomputed_layers_of_ranks_learn_the_same(folder: Path) -> None:
    plain, compiled = (torch.load(folder / f"{run}.pt", weights_only=True) for run in ("adamw", "compiled"))
    for name, weight in plain.items():
        torch.testing.assert_close(compiled[name], weight, rtol=0, atol=1e-6, msg=name)


def test_a_run_of_two_ranks_goes_on_with_one(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "left", tmp_path / "left")
    one = Trainer(recipe(folder, "left"), tmp_path / "left", "cpu")
    one.run()
    assert one.recipe.batches == RANKS
    straight = torch.load(folder / "adamw.pt", weights_only=True)
    for name, weight in one.learner.model.named_parameters():
        torch.testing.assert_close(weight.detach(), straight[name], rtol=0, atol=1e-6, msg=name)


@pytest.mark.parametrize("run", ["adamw", "muon", "lora"])
def test_each_rank_holds_its_part(folder: Path, run: str) -> None:
    notes = [json.loads((folder / f"{run}.{rank}.json").read_text()) for rank in range(RANKS)]
    for name, (_, count) in notes[0]["kept"].items():
        assert sum(note["kept"][name][0] for note in notes) == count, name
    for note in notes:
        held, count = (sum(sizes) for sizes in zip(*note["kept"].values(), strict=True))
        assert 0.45 * count < held < 0.55 * count
        held, count = note["optimizer"]
        assert 0.45 * count < held < 0.55 * count
    assert [note["drawn"] for note in notes] == [[0], [1]]


def test_one_signalled_rank_stops_both_and_they_go_on_bit_for_bit(folder: Path) -> None:
    notes = [json.loads((folder / f"cut.{rank}.json").read_text()) for rank in range(RANKS)]
    assert [note["stopped"] for note in notes] == [STEPS // 2] * RANKS
    straight, cut = (torch.load(folder / f"{run}.pt", weights_only=True) for run in ("adamw", "cut"))
    for name, weight in straight.items():
        assert torch.equal(weight, cut[name]), name


def test_the_first_rank_writes_for_all(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "adamw" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    state = torch.load(folder / "adamw" / "state.pt", weights_only=True)
    assert sorted(state["cursors"]) == [0, 1]
    exported = load(folder / "adamw" / "weights", dtype=torch.float32)
    for name, parameter in exported.named_parameters():
        assert torch.allclose(parameter, state["average"][name], rtol=1e-2, atol=1e-6), name


def test_the_command_under_torchrun(folder: Path, tmp_path: Path) -> None:
    text = f"""
name = "squares"
stage = "localization"
start = "{folder / "start"}"
steps = 2
dtype = "float32"
workers = 1
log_every = 1
[[data]]
shards = "{folder / "data"}"
[batch]
tokens = 384
patches = 256
learned = 96
sequences = 8
images = 16
"""
    (tmp_path / "recipe.toml").write_text(text)
    out = tmp_path / "run"
    ended = launch("-m", "holotron.train", str(tmp_path / "recipe.toml"), "--out", str(out), "--device", "cpu")
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.splitlines() == [str(out / "weights")]
    assert ended.stderr.count("step 2/2") == 1
    assert load(out / "weights").config.pattern == CONFIG.pattern
    # One process has as many batches a step: it finds the run at its end.
    assert Trainer(read_recipe(tmp_path / "recipe.toml"), out, "cpu").run() == out / "weights"


def test_batches_that_cannot_be_shared_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holotron.train.sft.join", lambda device: (Ranks(0, RANKS), device))
    with pytest.raises(TrainingError, match="3 batches a step cannot be shared by 2 processes"):
        Trainer(replace(recipe(tmp_path, "adamw"), batches=3), tmp_path, "cpu")


if __name__ == "__main__":
    program(Path(sys.argv[1]))
