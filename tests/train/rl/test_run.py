"""Runs of online RL over the smallest world: it is learned, a killed run goes on, and nothing is too old."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from holotron.episodes.store import EpisodeStore
from holotron.train.meter import TrainingError
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.progress import GrpoProgress
from holotron.train.rl.trainer import EPISODES, GrpoTrainer
from holotron.train.sft import Interrupted

from .samples import write_run

PATIENCE = 120.0


def train(path: Path, out: Path, **changes: Any) -> list[GrpoProgress]:
    told: list[GrpoProgress] = []
    torch.set_num_threads(1)  # as in the process that is killed
    GrpoTrainer(read_grpo_recipe(path, **changes), out, "cpu").run(told.append)
    return told


def lines(out: Path) -> list[dict[str, Any]]:
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(what: Callable[[], bool], process: multiprocessing.process.BaseProcess) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert process.is_alive(), "the run ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_run_that_is_killed_and_stopped_equals_one_that_was_not(tmp_path: Path) -> None:
    path, out = write_run(tmp_path, steps=5), tmp_path / "killed"
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["holotron.train.rl.trainer", "holotron.train.rl.rollout"])

    def episodes() -> int:
        folder = out / EPISODES / "episodes"
        return len(os.listdir(folder)) if folder.exists() else 0

    # While it plays its first iteration, and after it has told of a later one.
    for moment in (lambda: episodes() > 3, lambda: len(lines(out)) >= 2):
        process = server.Process(target=train, args=(path, out))
        process.start()
        wait_for(moment, process)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
    assert len(lines(out)) < 5
    trainer = GrpoTrainer(read_grpo_recipe(path), out, "cpu")
    with pytest.raises(Interrupted, match="of 5; run it again"):
        trainer.run(lambda _: trainer.stop())
    train(path, out)
    told = train(path, tmp_path / "whole")

    again = lines(out)
    assert [line["step"] for line in again] == [1, 2, 3, 4, 5]  # each is told once
    for one, other in zip(again, told, strict=True):
        for key in ("checksum", "loss", "gradient", "success", "tasks", "kept", "flat", "replayed", "entropy"):
            assert one[key] == getattr(other, key), (one["step"], key)
    ledgers = [json.loads((folder / "ledger-5.json").read_text()) for folder in (out, tmp_path / "whole")]
    assert ledgers[0] == ledgers[1]
    assert sum(line["kept"] for line in again) > 0
    with pytest.raises(TrainingError, match="holds a run of another recipe"):
        train(path, out, steps=6)


def test_a_bandit_is_learned_while_attempts_go_on_and_none_is_too_old(tmp_path: Path) -> None:
    path = write_run(tmp_path, steps=8, staleness=1, size=8, count=6, rollout='on_update = "recompute"')
    out = tmp_path / "run"
    told = train(path, out)
    success = [progress.success or 0.0 for progress in told]
    assert sum(success[-2:]) > 3 * sum(success[:2])
    assert sum(success[-2:]) > 1.0
    assert all(progress.most_staleness in (0, 1, None) for progress in told)
    assert any(progress.staleness for progress in told)  # some were begun before the last update
    differences = [value for progress in told if (value := progress.logprob_difference) is not None]
    assert max(differences) < 1e-5
    assert not any(progress.alarm for progress in told)
    store = EpisodeStore(out / EPISODES)
    outputs = [step.output for info in store.list_episodes() for step in store.steps(info.id)]
    assert {output.weight_version for output in outputs if output is not None} >= {0, 1, 2, 3}
    ledger = json.loads((out / "ledger-8.json").read_text())
    assert len(ledger["open"]) == 6  # begun, and not learned from
