"""Engines in processes of their own beside the trainer's, whose Python has enough to do with learning.

For policies so small that a GPU holds several copies without noticing. Weights cross in memory that all of them see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor

from holotron.agent.in_process import EngineModel
from holotron.agent.model_processes import ModelProcesses
from holotron.engine.weights import bit_checksum
from holotron.ops.recording import wait_for_device
from holotron.train.learner import Learner
from holotron.train.meter import TrainingError
from holotron.train.rl.engine_here import EngineHere
from holotron.train.rl.weight_sync import weights_of
from holotron.train.sequences import Sequence

ALIGNMENT = 64  # bytes


@dataclass(frozen=True)
class SharedWeights:
    """Tensors by name, one behind the other in memory that processes share."""

    memory_B: Tensor
    kinds: Mapping[str, tuple[tuple[int, ...], torch.dtype]]

    @classmethod
    def allocate(cls, kinds: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> SharedWeights:
        size = sum(_room(*kind) for kind in kinds.values())
        return cls(torch.empty(size, dtype=torch.uint8).share_memory_(), kinds)

    def on(self, device: torch.device) -> SharedWeights:
        """Room for them on a device, to and from which they are copied at once; these where it has this memory."""
        return (
            self if device.type == "cpu" else SharedWeights(torch.empty_like(self.memory_B, device=device), self.kinds)
        )

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        found, at = dict[str, Tensor](), 0
        for name, (shape, dtype) in self.kinds.items():
            found[name] = self.memory_B[at : at + prod(shape) * dtype.itemsize].view(dtype).view(shape)
            at += _room(shape, dtype)
        return found


def _room(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


class EnginesBeside:
    """Copies of the policy, asked as EngineHere is. All weights that learn go there, low-rank changes added."""

    def __init__(self, model: ModelProcesses) -> None:
        self.model = model
        self._shared: SharedWeights | None = None
        self._staged: SharedWeights | None = None

    @torch.no_grad()
    def send(self, learner: Learner, version: int) -> str:
        """Have all hold the weights of now; their checksum. TrainingError where one holds something else."""
        weights = dict(weights_of(learner))
        if self._shared is None or self._staged is None:
            types = self.model.call(_types)[0]
            kinds = {name: (tuple(weight.shape), types[name]) for name, weight in weights.items()}
            self._shared = SharedWeights.allocate(kinds)
            self._staged = self._shared.on(learner.device)
            self.model.call(_share, self._shared)
        staged = self._staged.tensors
        # One copy to the host: each waits until a GPU that engines share with the trainer has its turn again.
        torch._foreach_copy_([staged[name] for name in weights], list(weights.values()))
        if self._staged is not self._shared:
            self._shared.memory_B.copy_(self._staged.memory_B)
        sent = bit_checksum(staged.items())
        for held in self.model.call(_take, version):
            if held != sent:
                raise TrainingError(
                    f"an engine holds other weights ({held}) than it was sent ({sent}) as version {version}"
                )
        return sent

    def warm_up(self, sessions: int) -> None:
        self.model.call(_asked, "warm_up", -(-sessions // self.model.count))

    def tend(self) -> None:
        """ModelUnavailable where one of them is gone: the same command goes on."""
        self.model.check()

    def sleep(self) -> None:
        self.model.call(_asked, "sleep")

    def wake(self) -> None:
        self.model.call(_asked, "wake")

    def score(self, sequence: Sequence) -> list[float] | None:
        found: list[float] = self.model.call(_asked, "score", sequence)[0]
        return found


# ---- what a copy does, in its process ----


def _types(model: EngineModel) -> dict[str, torch.dtype]:
    return {name: parameter.dtype for name, parameter in model.engine.model.named_parameters()}


_held: list[tuple[SharedWeights, SharedWeights]] = []  # what all see, and this process's copy on its device


def _share(model: EngineModel, shared: SharedWeights) -> None:
    _held[:] = [(shared, shared.on(model.engine.model.device))]


def _take(model: EngineModel, version: int) -> str:
    engine, [(shared, staged)] = model.engine, _held
    if staged is not shared:
        staged.memory_B.copy_(shared.memory_B)
    engine.update_weights(staged.tensors, epoch=version)
    wait_for_device(engine.model.device)
    return bit_checksum((name, engine.model.get_parameter(name)) for name in staged.tensors)


def _asked(model: EngineModel, what: str, *arguments: Any) -> Any:
    """What an engine in this process would be asked."""
    return getattr(EngineHere(model), what)(*arguments)
