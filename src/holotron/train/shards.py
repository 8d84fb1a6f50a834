"""Tensors that several ranks hold together (DTensors of FSDP2), and plain ones, which pass through unchanged."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether this rank holds only a part of it."""
    # Importing it costs half as much as all of PyTorch. Whoever has a DTensor has paid for it.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of it, sharing its memory."""
    if not is_sharded(tensor):
        return tensor
    part: Tensor = _detached(tensor).to_local()
    return part


def whole(tensor: Tensor) -> Tensor:
    """All of it, gathered from all ranks: every rank must ask."""
    if not is_sharded(tensor):
        return tensor
    full: Tensor = _detached(tensor).full_tensor()
    return full


def joined(part: Tensor, like: Tensor) -> Tensor:
    """The whole of a tensor of which each rank has the part that it has of `like`: every rank must ask."""
    if not is_sharded(like):
        return part
    from torch.distributed.tensor import DTensor

    held: Any = like
    return whole(DTensor.from_local(part, held.device_mesh, held.placements, shape=like.shape, stride=held.stride()))


def sharded(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor that each rank has, held in parts as `like` is. Nothing is sent."""
    if not is_sharded(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    held: Any = like
    return distribute_tensor(tensor, held.device_mesh, held.placements, src_data_rank=None)


def _detached(tensor: Tensor) -> Any:
    return tensor.detach()
