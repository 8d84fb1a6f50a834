"""Weights over torch.distributed: servers that never come, or refuse, and recipes that cannot be."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from holotron.engine.weight_group import TransferFailed
from holotron.train.meter import TrainingError
from holotron.train.recipe import RecipeError
from holotron.train.rl import broadcast
from holotron.train.rl.config import read_grpo_recipe

from .samples import write_run


@pytest.mark.parametrize(
    ("rollout", "more", "problem"),
    [
        ('engines = ["http://a:1"]\nweights = "broadcast"', "[lora]\nrank = 4\n", "adapter goes in files"),
        ('weights = "broadcast"', "", "name them in engines"),
        ('weights = "pigeons"', "", "known are files, broadcast"),
    ],
)
def test_what_a_recipe_cannot_say(tmp_path: Path, rollout: str, more: str, problem: str) -> None:
    path = write_run(tmp_path, steps=1, rollout=rollout)
    path.write_text(path.read_text() + more)
    with pytest.raises(RecipeError, match=problem):
        read_grpo_recipe(path)


def test_a_server_that_never_comes_is_waited_for_as_long_as_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "PATIENCE", 0.5)
    way, began = broadcast.Broadcast("", torch.device("cpu"), {"weight": torch.ones(3)}), time.monotonic()
    asked: list[str] = []

    def ask(method: str, path: str, body: dict[str, Any], seconds: float) -> None:
        asked.append(path)
        if path == "/update_weights_from_distributed":
            time.sleep(2)
            raise TrainingError("nothing came")

    with pytest.raises(TransferFailed, match=r"the group with http://127\.0\.0\.1:9 broke"):
        way.give("http://127.0.0.1:9", "run/1", ask)
    assert asked[-1] == "/update_weights_from_distributed"
    assert time.monotonic() - began < 30


def test_what_a_server_refuses_is_told_at_once() -> None:
    way, began = broadcast.Broadcast("127.0.0.1", torch.device("cpu")), time.monotonic()

    def refuse(*_: object) -> None:
        raise TrainingError("the key")

    with pytest.raises(TrainingError, match="the key"):
        way.give("http://10.0.3.7:8000", "run/1", refuse)
    assert time.monotonic() - began < 30


def test_an_address_of_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "PATIENCE", 0.3)
    way = broadcast.Broadcast("192.0.2.1", torch.device("cpu"))
    with pytest.raises(TrainingError, match=r"no group can meet at 192\.0\.2\.1; change address"):
        way.give("http://10.0.3.7:8000", "run/1", lambda *_: None)
