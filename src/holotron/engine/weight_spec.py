"""What a trainer announces before it sends weights. Without torch until it is used: the HTTP process reads it, too."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holotron.engine.errors import EngineError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DTYPES = ("float64", "float32", "float16", "bfloat16", "int8")
BACKENDS = ("gloo", "nccl")
PACKED_BYTES = 2**30  # after which vLLM's trainers begin another buffer


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that is about to come."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype.removeprefix("torch.") not in DTYPES:
            raise EngineError(f"{self.name} is announced as {self.dtype}; weights are one of {', '.join(DTYPES)}")

    def empty(self, device: torch.device) -> Tensor:
        import torch

        try:
            return torch.empty(self.shape, dtype=self.torch_dtype, device=device)
        except (RuntimeError, TypeError, OverflowError) as error:
            raise EngineError(f"{self.name} is announced with the shape {self.shape}, which has no room") from error

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        return getattr(torch, self.dtype.removeprefix("torch."))

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.torch_dtype.itemsize


@dataclass(frozen=True)
class GroupAddress:
    """Where a group meets, who of it this process is, and who the trainer. Rank 0 holds the store."""

    name: str
    host: str
    port: int
    rank: int
    world_size: int
    backend: str = ""  # nccl or gloo, as the model's device has it, if it is not said
    trainer: int = 0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.:%-]+", self.host):
            raise EngineError(f"the group meets at {self.host!r}; it must be a host's name or address")
        if self.backend and self.backend not in BACKENDS:
            raise EngineError(f"the backend is {self.backend!r}; it must be one of {', '.join(BACKENDS)}")
        if not 0 <= self.rank < self.world_size or self.rank == self.trainer:
            problem = f"rank {self.rank} of {self.world_size} is none that a server can have"
            raise EngineError(f"{problem}: the trainer is rank {self.trainer}, and ranks are below the size")
