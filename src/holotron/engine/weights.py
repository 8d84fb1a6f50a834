"""Replacing a model's weights in place, all or nothing."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from holotron.engine.errors import EngineError
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.model import Model


def read_weights(model: Model, source: str | Path | dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a checkpoint folder, or given by parameter name (a part will do), once they fit the model."""
    if isinstance(source, dict):
        tensors = source
    else:
        other = load_checkpoint(source, "cpu", model.dtype)
        tensors = dict(other.named_parameters())
        if missing := set(dict(model.named_parameters())) - set(tensors):
            raise EngineError(
                f"{source} lacks {sorted(missing)[0]} and {len(missing) - 1} more of this model's weights"
            )
    own = dict(model.named_parameters())
    for name, tensor in tensors.items():
        if name not in own:
            raise EngineError(f"the model has no parameter {name}")
        if own[name].shape != tensor.shape:
            raise EngineError(f"{name} has shape {list(tensor.shape)}; the model's is {list(own[name].shape)}")
        if not torch.isfinite(tensor).all():
            raise EngineError(f"{name} holds NaN or infinity")
    return tensors


@torch.no_grad()
def copy_weights(model: Model, tensors: dict[str, Tensor]) -> None:
    """Write tensors that `read_weights` has checked into the model."""
    own = dict(model.named_parameters())
    for name, tensor in tensors.items():
        own[name].copy_(tensor)
