"""Runs of online RL against engines in processes of their own on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from hashlib import sha256
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from holotron.agent.chat import ModelUnavailable
from holotron.agent.in_process import EngineModel
from holotron.engine.weights import weight_checksums
from holotron.train.learner import Learner
from holotron.train.meter import TrainingError
from holotron.train.rl import engines_beside
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.engines_beside import EnginesBeside
from holotron.train.rl.policy_learner import PolicyLearner
from holotron.train.rl.progress import GrpoProgress
from holotron.train.rl.trainer import GrpoTrainer

from .runs import SAME, lines, train
from .samples import write_run


def held_by(model: EngineModel) -> dict[str, str]:
    return weight_checksums(model.engine.model)


def not_taken(model: EngineModel) -> int:
    """Sessions that were forked for a group and that nobody played."""
    assert model.shared is not None
    return sum(len(forked.result()) for forked in model.shared._ready.values())


def test_a_run_against_copies_is_the_run_of_an_engine_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: Callable[[], list[BaseProcess]]
) -> None:
    seen: list[tuple[dict[str, str], ...]] = []
    forked: list[list[int]] = []
    send = EnginesBeside.send

    def sent(self: EnginesBeside, learner: Learner, version: int) -> str:
        checksum = send(self, learner, version)
        learned = {
            name: sha256(weight.numpy().tobytes()).hexdigest() for name, weight in learner.weights(averaged=False)
        }
        seen.append((learned, *self.model.call(held_by)))
        forked.append(self.model.call(not_taken))
        return checksum

    expected = train(write_run(tmp_path / "1", steps=3), tmp_path / "here")
    monkeypatch.setattr(EnginesBeside, "send", sent)
    beside = train(write_run(tmp_path / "2", steps=3, rollout="copies = 2\nworkers = 2"), tmp_path / "beside")
    for one, other in zip(beside, expected, strict=True):
        for key in SAME:
            assert getattr(one, key) == getattr(other, key), (one.step, key)
    assert max(each.scored_difference or 0.0 for each in beside) < 1e-6
    assert not begun()
    assert {"decoder.layers.0.mixer.D", "decoder.layers.0.mixer.conv1d.weight"} < seen[0][0].keys()
    for learned, *copies in seen:
        assert copies == [learned, learned]
    assert len({str(learned) for learned, *_ in seen}) == len(seen) == 4
    assert forked == [[0, 0]] * 4  # a group is played by the copy that computed its prompt


def test_a_wrong_checksum_ends_the_run(tmp_path: Path) -> None:
    path = write_run(tmp_path, steps=1, rollout="copies = 1\nworkers = 1")
    learner = PolicyLearner(read_grpo_recipe(path), torch.device("cpu"))

    class Copies:
        def call(self, function: Any, *arguments: Any) -> list[Any]:
            if function is engines_beside._take:
                return [*map(str, range(2))]
            if function is engines_beside._share:
                return [None]
            return [{name: weight.dtype for name, weight in learner.weights(averaged=False)}]

    with pytest.raises(TrainingError, match=r"holds other weights \(0\)"):
        EnginesBeside(Copies()).send(learner, 1)  # type: ignore[arg-type]


def test_a_copy_that_is_killed_ends_the_run_and_the_same_command_goes_on(
    tmp_path: Path, begun: Callable[[], list[BaseProcess]]
) -> None:
    path, out = write_run(tmp_path, steps=3, rollout="copies = 2\nworkers = 2"), tmp_path / "out"
    trainer = GrpoTrainer(read_grpo_recipe(path), out, "cpu")
    killed: list[int] = []

    def kill(progress: GrpoProgress) -> None:
        if not killed:
            killed.append(min(child.pid or 0 for child in begun()))  # copies start first
            os.kill(killed[0], signal.SIGKILL)

    torch.set_num_threads(1)
    with pytest.raises(ModelUnavailable, match="has ended"):
        trainer.run(kill)
    assert killed
    train(path, out)
    assert [line["step"] for line in lines(out)] == [1, 2, 3]
