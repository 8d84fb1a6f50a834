"""What a run needs to go on as if it had never stopped, in one file that is whole or not there.

Ranks gather what they hold in parts and the first one writes it, so that a file looks the same however a model was
sharded. What does not learn is not in it: it is read again from where the run started.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holotron.episodes.files import whole_file
from holotron.train.loader import Cursor
from holotron.train.optimizer import Average, trained
from holotron.train.parallel import Ranks, is_sharded, sharded, whole

NAME = "state.pt"


def save_state(
    folder: Path,
    step: int,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    average: Average,
    cursors: dict[int, Cursor],
    ranks: Ranks = Ranks(),
) -> None:
    state = {
        "step": step,
        "model": {name: p.detach() for name, p in trained(model).items()},
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "average": average.weights,
        "cursors": {stream: asdict(cursor) for stream, cursor in sorted(_furthest(ranks.gather(cursors)).items())},
    }
    state = _gathered(state, ranks.first)
    if not ranks.first:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / NAME) as partial:
        torch.save(state, partial)


def load_state(
    folder: Path,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    average: Average,
    ranks: Ranks = Ranks(),
) -> tuple[int, dict[int, Cursor]]:
    """The step that is next and the loaders' cursors; model, optimisers and average are filled in place."""
    device = next(model.parameters()).device if ranks.size == 1 else "cpu"
    state: dict[str, Any] = torch.load(folder / NAME, map_location=device, weights_only=True)
    parameters = trained(model)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(sharded(state["model"][name], parameter))
        for name, weights in average.weights.items():
            weights.copy_(sharded(state["average"][name], weights))
    for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
        members = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, values in kept["state"].items():
            kept["state"][index] = {key: _fitted(value, members[index]) for key, value in values.items()}
        optimizer.load_state_dict(kept)
    cursors = {
        stream: Cursor(kept["draws"], tuple(kept["positions"]), tuple(map(tuple, kept.get("aside", ()))))
        for stream, kept in state["cursors"].items()
    }
    return state["step"], cursors


def _furthest(cursors: list[dict[int, Cursor]]) -> dict[int, Cursor]:
    """Of each stream the cursor of the rank that draws from it: the others have what they began with."""
    merged: dict[int, Cursor] = {}
    for stream, cursor in (item for held in cursors for item in held.items()):
        if stream not in merged or merged[stream].draws < cursor.draws:
            merged[stream] = cursor
    return merged


def _fitted(value: Any, parameter: Tensor) -> Any:
    """An optimiser's value, in parts if it is one per weight."""
    return sharded(value, parameter) if isinstance(value, Tensor) and value.shape == parameter.shape else value


def _gathered(value: Any, kept: bool) -> Any:
    """A tree of values with its sharded tensors whole, one after another; only where kept do they stay in memory."""
    if isinstance(value, dict):
        return {key: _gathered(item, kept) for key, item in value.items()}
    if isinstance(value, list):
        return [_gathered(item, kept) for item in value]
    if isinstance(value, Tensor) and is_sharded(value):
        full = whole(value)
        return full.cpu() if kept else None
    return value
