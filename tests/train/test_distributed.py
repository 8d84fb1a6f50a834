"""Two ranks, each with a part of the model and with data of its own, learn what one process would from all of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from holotron.model.loading import load
from holotron.train.batches import BatchBudget, TrainingBatch
from holotron.train.loader import BatchStream
from holotron.train.lora import LoraConfig
from holotron.train.optimizer import OptimizerConfig
from holotron.train.parallel import Ranks, leave, local, whole
from holotron.train.recipe import DataSource, Recipe, read_recipe
from holotron.train.sft import Interrupted, Progress, Trainer, TrainingError

from .samples import CONFIG, write_start

ROOT = Path(__file__).parents[2]
STEPS = 3
RANKS = 2
RUNS = ("adamw", "muon", "lora", "cut")


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
        optimizer=OptimizerConfig(kind=kind, rate=3e-3, warmup=2, average=0.5),  # type: ignore[arg-type]
        lora=LoraConfig(rank=4, alpha=8.0) if run == "lora" else LoraConfig(),
        ocr_loss=0.5 if run == "muon" else 0.0,
    )


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of Python's, once per rank, as torchrun does it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", *arguments]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)


def program(folder: Path) -> None:
    """What each rank does: every run, and for each a note of what this rank held of it."""
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
            trainer = Trainer(recipe(folder, run), folder / run, "cpu")
        trainer.run()
        for name, parameter in trainer.model.named_parameters():
            note["kept"][name] = (local(parameter).numel(), parameter.numel())
        states = [values for optimizer in trainer.optimizers for values in optimizer.state.values()]
        tensors = [value for values in states for value in values.values() if value.dim()]
        note["optimizer"] = sum(local(value).numel() for value in tensors), sum(value.numel() for value in tensors)
        note["drawn"] = sorted(trainer.cursors)
        (folder / f"{run}.{rank}.json").write_text(json.dumps(note))
        final = {name: whole(p).clone() for name, p in trainer.model.named_parameters()}
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


class Pair:
    """The batches of both ranks, as one."""

    def __init__(self, *members: TrainingBatch) -> None:
        self.members = members

    def to(self, device: torch.device) -> Pair:
        return self


class Together(Trainer):
    """One process that learns from the batches of all ranks at once."""

    unequal = False  # whether the ranks ever had unequally much to learn

    def losses(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        losses = [self._losses(member) for member in batch.members]
        sums = [(said * member.weights_N).sum() for (said, _), member in zip(losses, batch.members, strict=True)]
        learned = [member.weights_N.sum() for member in batch.members]
        self.unequal |= bool(learned[0] != learned[1])
        said = torch.stack(sums).sum() / torch.stack(learned).sum()
        written = torch.stack([each for _, each in losses]).mean()
        return said + self.recipe.ocr_loss * written, said, written

    def learn_all(self) -> dict[str, torch.Tensor]:
        sources = self.recipe.data, self.writer, self.packer, self.recipe.seed
        streams = [iter(BatchStream(*sources, rank=rank, ranks=RANKS)) for rank in range(RANKS)]
        for _ in range(STEPS):
            self._learn(Pair(*(next(stream).batch for stream in streams)))  # type: ignore[arg-type]
            self.step += 1
        return {name: p.detach() for name, p in self.model.named_parameters()}


@pytest.mark.parametrize("run", ["adamw", "muon", "lora"])
def test_ranks_learn_what_one_process_would(folder: Path, run: str, tmp_path: Path) -> None:
    asked = recipe(folder, run)
    begun = Trainer(asked, tmp_path, "cpu").model.state_dict()
    one = Together(asked, tmp_path, "cpu")
    expected = one.learn_all()
    assert one.unequal, "ranks that learn equally much would not show how they are weighed"
    got = torch.load(folder / f"{run}.pt", weights_only=True)
    assert got.keys() == expected.keys()
    moved = max(float((weight - begun[name]).abs().max()) for name, weight in expected.items())
    apart = max(float((weight - got[name]).abs().max()) for name, weight in expected.items())
    assert moved > 1e-3
    assert apart < 1e-3 * moved


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
    # A run of two ranks is not one of one: the data would come in another order.
    with pytest.raises(TrainingError, match="ranks differ"):
        Trainer(read_recipe(tmp_path / "recipe.toml"), out, "cpu").run()


def test_what_ranks_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holotron.train.sft.join", lambda device: (Ranks(0, RANKS), device))
    with pytest.raises(TrainingError, match="compile = true is for one process, and this run has 2"):
        Trainer(replace(recipe(tmp_path, "adamw"), compile=True), tmp_path, "cpu")


if __name__ == "__main__":
    program(Path(sys.argv[1]))
