"""States of a run: written beside it, whole or not there, whatever happens while they are written."""

from __future__ import annotations

import os
import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint import state_dict_saver

from holotron.train.loader import Cursor
from holotron.train.meter import TrainingError
from holotron.train.optimizer import Average, OptimizerConfig, make_optimizers
from holotron.train.state import StateWriter, load_state, read_about

CURSORS = {0: Cursor(3, (1, 2), ((4, 5),))}


class Run:
    """A small model that learns, with what belongs to it."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Linear(64, 64)
        self.optimizers = make_optimizers(self.model, OptimizerConfig(rate=0.1))
        self.average = Average(self.model, 0.5)

    def learn(self, step: int) -> None:
        self.optimizers[0].zero_grad()
        self.model(torch.ones(2, 64)).square().sum().backward()
        self.optimizers[0].step()
        self.average.update(self.model, step)

    @property
    def parts(self) -> tuple[nn.Module, list[torch.optim.Optimizer], Average]:
        return self.model, self.optimizers, self.average

    def weights(self) -> torch.Tensor:
        return self.model.weight.detach().clone()


def save_state(folder: Path, step: int, *parts: Any) -> None:
    """Write a state and wait for it."""
    with StateWriter(folder) as writer:
        writer.begin(step, *parts)
        writer.end()


def test_everything_is_as_it_was(tmp_path: Path) -> None:
    run = Run()
    run.learn(0)
    save_state(tmp_path, 1, *run.parts, CURSORS)
    other = Run(seed=1)
    assert load_state(tmp_path, *other.parts) == (1, CURSORS)
    for each in (run, other):
        each.learn(1)
    assert torch.equal(run.weights(), other.weights())
    assert torch.equal(run.average.weights["weight"], other.average.weights["weight"])


def test_a_run_goes_on_while_its_state_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, learned, save = Run(), threading.Event(), state_dict_saver.save

    def late(*args: Any, **options: Any) -> Any:
        assert learned.wait(60), "the run has waited for its state"
        return save(*args, **options)

    monkeypatch.setattr(state_dict_saver, "save", late)
    with StateWriter(tmp_path) as states:
        begun = run.weights()
        states.begin(1, *run.parts, CURSORS)
        run.learn(1)
        assert read_about(tmp_path) is None
        learned.set()
        states.end()
    other = Run(seed=1)
    load_state(tmp_path, *other.parts)
    assert torch.equal(other.weights(), begun)
    assert not torch.equal(other.weights(), run.weights())


def test_a_kill_at_any_moment_leaves_a_whole_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the disk has before and behind everything that is done to it is what a kill there would leave."""
    run, moments = Run(), list[Path]()
    save_state(tmp_path / "run", 1, *run.parts, CURSORS)
    expected = {1: run.weights()}
    run.learn(1)
    expected[2] = run.weights()

    def seen(function: Callable[..., Any]) -> Callable[..., Any]:
        def around(*args: Any, **options: Any) -> Any:
            shutil.copytree(tmp_path / "run", tmp_path / str(len(moments)))
            moments.append(tmp_path / str(len(moments)))
            return function(*args, **options)

        return around

    with monkeypatch.context() as patch:
        for module, name in ((os, "fsync"), (os, "replace"), (os, "rename"), (shutil, "rmtree")):
            patch.setattr(module, name, seen(getattr(module, name)))
        save_state(tmp_path / "run", 2, *run.parts, CURSORS)
    found = []
    for moment in (*moments, tmp_path / "run"):
        other = Run(seed=1)
        step, _ = load_state(moment, *other.parts)
        assert torch.equal(other.weights(), expected[step])
        found.append(step)
    assert len(found) > 5
    assert found == sorted(found)
    assert set(found) == {1, 2}
    # What a killed run left is removed with the next state.
    save_state(moments[0], 3, *run.parts, CURSORS)
    assert len(list((moments[0] / "state").iterdir())) == 1


def test_a_full_disk_leaves_the_last_state(tmp_path: Path) -> None:
    run = Run()
    save_state(tmp_path, 1, *run.parts, CURSORS)
    begun = run.weights()
    run.learn(1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))  # files grow no further, as where there is no room
    try:
        with pytest.raises(TrainingError, match=r"of step 2 could not be written .*File too large.* of step 1, is as"):
            save_state(tmp_path, 2, *run.parts, CURSORS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    other = Run(seed=1)
    assert load_state(tmp_path, *other.parts)[0] == 1
    assert torch.equal(other.weights(), begun)
    assert len(list((tmp_path / "state").iterdir())) == 1
