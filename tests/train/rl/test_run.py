"""Runs of online RL over the smallest world: it is learned, a killed run goes on, and nothing is too old."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
import torch

from holotron.episodes.store import EpisodeStore
from holotron.model.loading import load
from holotron.train.meter import TrainingError
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.trainer import EPISODES, GrpoTrainer
from holotron.train.sft import Interrupted

from .runs import SAME, episodes, killed_run, lines, train
from .samples import write_run


def test_a_run_that_is_killed_and_stopped_equals_one_that_was_not(tmp_path: Path) -> None:
    path, out = write_run(tmp_path, steps=5), tmp_path / "killed"
    # While it plays its first iteration, and after it has told of a later one.
    killed_run(path, out, [lambda: episodes(out) > 3, lambda: len(lines(out)) >= 2])
    assert len(lines(out)) < 5
    trainer = GrpoTrainer(read_grpo_recipe(path), out, "cpu")
    with pytest.raises(Interrupted, match="of 5; run it again"):
        trainer.run(lambda _: trainer.stop())
    left = load(out / "weights", "cpu")
    for name, parameter in trainer.learner.model.named_parameters():
        assert torch.equal(left.get_parameter(name), parameter.to(left.get_parameter(name).dtype)), name
    train(path, out)
    told = train(path, tmp_path / "whole")

    again = lines(out)
    assert [line["step"] for line in again] == [1, 2, 3, 4, 5]  # each is told once
    for one, other in zip(again, told, strict=True):
        for key in SAME:
            assert one[key] == getattr(other, key), (one["step"], key)
    ledgers = [json.loads((folder / "ledger-5.json").read_text()) for folder in (out, tmp_path / "whole")]
    assert ledgers[0] == ledgers[1]
    assert sum(line["kept"] for line in again) > 0
    with pytest.raises(TrainingError, match=r"holds a run of another recipe \(steps differ\); choose another --out"):
        train(path, out, steps=6)


def test_disks_are_waited_for_beside_the_iterations_and_what_a_state_needs_is_there_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, str]] = []
    behind: list[int] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        synced.append((threading.current_thread().name, name.split(".partial")[0]))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    recipe = read_grpo_recipe(write_run(tmp_path, steps=3))
    GrpoTrainer(recipe, tmp_path / "run", "cpu").run(lambda _: behind.append(len(synced)))
    assert {thread for thread, _ in synced[behind[0] : behind[-1]]} <= {"state_0"}
    names = [name for thread, name in synced if thread == "state_0"]
    assert names.count(".state.json") == 3
    while names:
        needed, names = names[: names.index(".state.json")], names[names.index(".state.json") + 2 :]
        assert "metrics.jsonl" in needed
        assert any(name.startswith(".ledger-") for name in needed)


def test_a_run_whose_time_is_over_has_ended_well_and_goes_on_with_more_time(tmp_path: Path) -> None:
    path, out = write_run(tmp_path, steps=3), tmp_path / "run"
    assert len(train(path, out, seconds=1e-3)) == 1  # one iteration is begun before it is known how long they take
    assert (out / "weights" / "config.json").exists()
    assert train(path, out, seconds=1e-3) == []
    assert [progress.step for progress in train(path, out, seconds=3600)] == [2, 3]
    told = lines(out)
    assert [line["step"] for line in told] == [1, 2, 3]
    whole = train(path, tmp_path / "whole")
    assert [line["checksum"] for line in told] == [progress.checksum for progress in whole]


def test_a_bandit_is_learned_from_random_weights(tmp_path: Path) -> None:
    told = train(write_run(tmp_path, steps=9, size=8, count=4), tmp_path / "run")
    success = [progress.success or 0.0 for progress in told]
    assert sum(success[:2]) < 0.6  # by chance
    assert sum(success[-2:]) > 1.2
    assert max(progress.difference or 0.0 for progress in told) < 1e-5
    assert not any(progress.alarm for progress in told)


def test_attempts_go_on_while_it_learns_and_none_is_too_old(tmp_path: Path) -> None:
    path, out = write_run(tmp_path, steps=4, staleness=1, rollout='on_update = "recompute"'), tmp_path / "run"
    told = train(path, out)
    assert all(progress.most_staleness in (0, 1, None) for progress in told)
    assert any(progress.staleness for progress in told)  # some were begun before the last update
    assert max(progress.difference or 0.0 for progress in told) < 1e-5
    store = EpisodeStore(out / EPISODES)
    outputs = [step.output for info in store.list_episodes() for step in store.steps(info.id)]
    assert len({output.weight_version for output in outputs if output is not None}) > 1
    ledger = json.loads((out / "ledger-4.json").read_text())
    assert ledger["open"]  # begun, and not learned from
