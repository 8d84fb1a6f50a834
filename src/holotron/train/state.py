"""What a run needs to go on as if it had never stopped, in one file that is whole or not there."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from holotron.train.loader import Cursor
from holotron.train.optimizer import Average

NAME = "state.pt"


def save_state(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    average: Average,
    cursors: dict[int, Cursor],
) -> None:
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "average": average.weights,
        "cursors": {worker: asdict(cursor) for worker, cursor in cursors.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    staging = folder / f".{NAME}.{os.getpid()}"
    with open(staging, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(staging, folder / NAME)


def load_state(
    folder: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], average: Average
) -> tuple[int, dict[int, Cursor]]:
    """The step that is next and the loaders' cursors; model, optimisers and average are filled in place."""
    device = next(model.parameters()).device
    state: dict[str, Any] = torch.load(folder / NAME, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    for name, weights in state["average"].items():
        average.weights[name].copy_(weights)
    cursors = {worker: Cursor(kept["draws"], tuple(kept["positions"])) for worker, kept in state["cursors"].items()}
    return state["step"], cursors
