"""One model over several processes (FSDP2): each holds a part of every weight, gradient and optimiser state.

A layer's weights are gathered just before it is run, forward and backward, and let go behind it; its gradients are
summed over the ranks and kept in parts. `torchrun` starts the processes; without it there is one, which holds all.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holotron.model.model import Model

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this is. Alone, everything here costs nothing."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """A small value of every rank, in their order. Goes over the network of the CPUs: no GPU is waited for."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def sum(self, value: Tensor) -> Tensor:
        """The sum of a tensor over the ranks."""
        if self.size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a tensor over the ranks."""
        return value if self.size == 1 else self.sum(value) / self.size


def join(device: torch.device) -> tuple[Ranks, torch.device]:
    """Take one's place among the processes that torchrun started, and the device that is one's own there."""
    if not dist.is_torchelastic_launched():
        return Ranks(), device
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return Ranks(dist.get_rank(), dist.get_world_size()), device


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def shard(model: Model, device: torch.device) -> None:
    """Split the model's parameters between the ranks, each layer and each block of the tower a group of its own.

    FSDP2 gathers weights around a module's forward, and lets go of them behind it: what is to be run over the whole
    model is given to the model from here on, with its arguments.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    blocks: list[nn.Module] = [] if model.vision is None else list(model.vision.blocks)
    for module in [*blocks, *model.decoder.layers]:
        fully_shard(module, mesh=mesh)
    model.forward = lambda function, *arguments: function(*arguments)  # type: ignore[method-assign]
    fully_shard(model, mesh=mesh)


# ---- tensors that several ranks hold together (DTensors of FSDP2); plain ones pass through unchanged ----


def is_sharded(tensor: Tensor) -> bool:
    """Whether this rank holds only a part of it."""
    # Importing it costs half as much as all of PyTorch. Where there is a DTensor it is paid for.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of it, sharing its memory."""
    if not is_sharded(tensor):
        return tensor
    part: Tensor = _detached(tensor).to_local()
    return part


def own_rows(tensor: Tensor) -> tuple[int, int]:
    """The first of the rows that this rank holds, and the one behind the last."""
    if not is_sharded(tensor):
        return 0, len(tensor)
    held: Any = tensor
    most = -(-len(tensor) // held.device_mesh.size())  # all but the last have so many
    start = min(held.device_mesh.get_local_rank() * most, len(tensor))
    return start, start + len(local(tensor))


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
