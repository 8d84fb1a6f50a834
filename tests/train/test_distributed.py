"""Ranks, each with a part of the model and with data of its own, learn what one process would from all of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from holotron.model.checkpoint import rows
from holotron.model.loading import load
from holotron.train import forward, learner
from holotron.train.batches import BatchBudget
from holotron.train.feature_cache import FeatureCacheConfig
from holotron.train.lora import LoraConfig
from holotron.train.meter import Progress, TrainingError
from holotron.train.optimizer import OptimizerConfig
from holotron.train.parallel import Ranks, leave, local, whole
from holotron.train.recipe import DataSource, Recipe, read_recipe
from holotron.train.sft import Interrupted, Trainer
from holotron.train.state import read_about

from .samples import CONFIG, write_start

ROOT = Path(__file__).parents[2]
STEPS = 3
RANKS, MORE = 2, 4
RUNS = ("adamw", "muon", "lora", "cut", "left", "compiled")
# Steps of four batches: with two ranks throughout, or with another number of ranks from the second step on.
CHANGING = ("throughout", "grows", "shrinks")


def recipe(folder: Path, run: str) -> Recipe:
    kind = "muon" if run == "muon" else "adamw"
    names = ("data", "written") if run == "muon" else ("data",)
    return Recipe(
        name="squares",
        stage="localization",
        # Low-rank changes of Qwen3-VL's kind, with the features of its tower kept by all ranks in one place.
        start=str(folder / ("qwen" if run == "lora" else "start")),
        steps=STEPS,
        data=tuple(DataSource(shards=str(folder / name)) for name in names),
        dtype="float32",
        workers=0,
        log_every=1,
        keep_every=100,
        batch=BatchBudget(tokens=384, patches=256, learned=96, sequences=8, images=16),
        optimizer=OptimizerConfig(kind=kind, rate=1e-3, warmup=2, average=0.5),  # type: ignore[arg-type]
        lora=LoraConfig(rank=4, alpha=8.0) if run == "lora" else LoraConfig(),
        feature_cache=FeatureCacheConfig(str(folder / "features") if run == "lora" else ""),
        ocr_loss=0.5 if run == "muon" else 0.0,
        compile=run == "compiled",
        recompute="full" if run == "compiled" else "none",
        batches=MORE if run in CHANGING else 0,
        # Measured by passes that no backward pass follows, and then kept.
        held_out=(DataSource(shards=str(folder / "data")),) if run == "adamw" else (),
        held_out_every=1,
        held_out_batches=1,
    )


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of Python's, once per rank, as torchrun does it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", *arguments]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)


@contextmanager
def joined(folder: Path, number: int, ranks: int) -> Iterator[bool]:
    """Inside, that many of the processes make a group, which the others are not in."""
    rank = int(os.environ["RANK"])
    if rank < ranks:
        dist.init_process_group("gloo", f"file://{folder}/group{number}", rank=rank, world_size=ranks)
    yield rank < ranks
    leave()


def program(rank: int, folder: Path) -> None:
    """What the processes do: two of them every run, and then changing numbers of them those that they share."""
    os.environ |= {"RANK": str(rank), "TORCHELASTIC_RUN_ID": "tests"}  # as torchrun does
    with joined(folder, 0, RANKS) as inside:
        if inside:
            two_ranks(folder)
    later = ((MORE, {"grows": STEPS, "shrinks": STEPS // 2}), (RANKS, {"shrinks": STEPS}))
    for number, (ranks, runs) in enumerate(later, 1):
        with joined(folder, number, ranks) as inside:
            for run, steps in runs.items() if inside else ():
                trained_until(folder, run, steps)


def trained_until(folder: Path, run: str, steps: int) -> None:
    """A run to its end, or until so many steps are behind, and a note of its weights."""
    trainer = Trainer(recipe(folder, run), folder / run, "cpu")
    with suppress(Interrupted):
        trainer.run(lambda progress: trainer.stop() if progress.step == steps < STEPS else None)
    note_weights(trainer, folder / f"{run}.pt")


def note_weights(trainer: Trainer, path: Path) -> None:
    final = {name: whole(p).clone() for name, p in trainer.learner.model.named_parameters()}
    if trainer.ranks.first:
        torch.save(final, path)


@contextmanager
def counted(open_tensors: Any, read: list[int], file: Path) -> Iterator[Any]:
    """An open file that notes how many bytes are asked of it."""

    class Counting:
        def __init__(self, tensors: Any, name: str) -> None:
            self.part = tensors.get_slice(name)

        def __getitem__(self, wanted: slice) -> torch.Tensor:
            part: torch.Tensor = self.part[wanted]
            read.append(part.nbytes)
            return part

    with open_tensors(file) as tensors:
        yield SimpleNamespace(get_slice=partial(Counting, tensors))


def two_ranks(folder: Path) -> None:
    """Every run, and for each a note of what this rank held of it."""
    # Traced and run as a graph; generating C++ from it is PyTorch's business and takes minutes here.
    for module in (forward, learner):
        module.compiled = partial(torch.compile, dynamic=False, backend="aot_eager")  # type: ignore[attr-defined]
    read: list[int] = []
    rows.open_tensors = partial(counted, rows.open_tensors, read)  # type: ignore[assignment]
    for run in RUNS:
        read.clear()
        trainer = Trainer(recipe(folder, run), folder / run, "cpu")
        rank = trainer.ranks.rank
        note: dict[str, Any] = {"stopped": None, "kept": {}, "optimizer": 0, "drawn": [], "read": sum(read)}
        if run in ("cut", "left"):
            # The first rank alone is told to stop; both must, behind the same step.
            def told(progress: Progress) -> None:
                if progress.step == STEPS // 2:
                    os.kill(os.getpid(), signal.SIGTERM)

            try:
                trainer.run(told)
            except Interrupted:
                note["stopped"] = trainer.step
            if run == "left":
                continue
            trainer = Trainer(recipe(folder, run), folder / run, "cpu")
        trainer.run()
        for name, parameter in trainer.learner.model.named_parameters():
            note["kept"][name] = (local(parameter).numel(), parameter.numel())
        states = [values for optimizer in trainer.learner.optimizers for values in optimizer.state.values()]
        tensors = [value for values in states for value in values.values() if value.dim()]
        note["optimizer"] = sum(local(value).numel() for value in tensors), sum(value.numel() for value in tensors)
        note["drawn"] = sorted(trainer.cursors)
        (folder / f"{run}.{rank}.json").write_text(json.dumps(note))
        note_weights(trainer, folder / f"{run}.pt")
    for run, steps in {"throughout": STEPS, "grows": STEPS // 2}.items():
        trained_until(folder, run, steps)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("ranks")
    write_start(made)
    # Forked from one process that has imported all they need: each by itself would take seconds for that.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch.distributed.fsdp", "torch._dynamo"])
    processes = [context.Process(target=program, args=(rank, made)) for rank in range(MORE)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(900)
    assert [process.exitcode for process in processes] == [0] * MORE
    return made


@pytest.mark.parametrize("run", ["adamw", "muon", "lora"])
def test_ranks_learn_what_one_process_would(folder: Path, run: str, tmp_path: Path) -> None:
    """One process that goes through the batches of both ranks before it takes a step."""
    asked = replace(recipe(folder, run), batches=RANKS)
    begun = Trainer(asked, tmp_path, "cpu").learner.model.state_dict()
    one = Trainer(asked, tmp_path, "cpu")
    learned = [[int(each.batch.weights_N.sum()) for each in step] for step in islice(one.batches(), STEPS)]
    assert any(first != second for first, second in learned), "ranks that learn equally much hide how they are weighed"
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


@pytest.mark.parametrize("run", ["grows", "shrinks"])
def test_a_run_goes_on_with_another_number_of_ranks(folder: Path, run: str) -> None:
    throughout, got = (torch.load(folder / f"{name}.pt", weights_only=True) for name in ("throughout", run))
    for name, weight in throughout.items():
        torch.testing.assert_close(got[name], weight, rtol=0, atol=1e-6, msg=name)
    lines = [json.loads(line) for line in (folder / run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("run", ["adamw", "muon", "lora"])
def test_each_rank_holds_its_part(folder: Path, run: str) -> None:
    notes = [json.loads((folder / f"{run}.{rank}.json").read_text()) for rank in range(RANKS)]
    for name, (_, count) in notes[0]["kept"].items():
        assert sum(note["kept"][name][0] for note in notes) == count, name
    for note in notes:
        held, count = (sum(sizes) for sizes in zip(*note["kept"].values(), strict=True))
        assert 0.45 * count < held < 0.55 * count
        stored = sum(4 * size for name, (_, size) in note["kept"].items() if "lora" not in name and "ocr" not in name)
        assert 0.45 * stored < note["read"] < 0.55 * stored
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
    about = read_about(folder / "adamw") or {}
    assert sorted(about["cursors"]) == ["0", "1"]
    (state,) = (folder / "adamw" / "state").iterdir()
    assert len(list(state.glob("*.distcp"))) == RANKS  # each has written its part
    exported = load(folder / "adamw" / "weights", dtype=torch.float32)
    average = {f"average.{name}": torch.empty_like(p) for name, p in exported.named_parameters()}
    dcp.load(average, checkpoint_id=state, no_dist=True)
    for name, parameter in exported.named_parameters():
        assert torch.allclose(parameter, average[f"average.{name}"], rtol=1e-2, atol=1e-6), name


def test_the_command_under_torchrun(folder: Path, tmp_path: Path) -> None:
    text = f"""
name = "squares"
stage = "localization"
start = "{folder / "start"}"
steps = 2
dtype = "float32"
workers = 0
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
