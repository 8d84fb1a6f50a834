"""The forward and backward pass of a batch as one CUDA graph: recorded with the first batch, replayed for the others.

A step of a small model is thousands of small kernels, which take the host longer to start than the device to run.
Batches have fixed shapes, so the same recording serves them all: their tables are copied to where it reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from holotron.ops.recording import record
from holotron.train.batches import TrainingBatch

WARM_UPS = 3


class CudaGraphStep:
    """Like `losses(batch, patches, positions)[0].backward()`; gives all losses.

    Gradients stay in the same memory and are overwritten with each batch: they must not be set to None between.
    """

    def __init__(
        self, losses: Callable[[TrainingBatch, Tensor, Tensor], tuple[Tensor, ...]], parameters: Iterable[Tensor]
    ) -> None:
        self._of, self._parameters = losses, list(parameters)
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: TrainingBatch, patches_PV: Tensor, positions_PW: Tensor) -> tuple[Tensor, ...]:
        if self._graph is None:
            self._record(batch, patches_PV, positions_PW)
        assert self._graph is not None
        for table, new in zip(self._tables, batch.tables(), strict=True):
            table.copy_(new, non_blocking=True)
        self._patches.copy_(patches_PV)
        with torch.no_grad():
            self._positions.copy_(positions_PW)
        self._graph.replay()
        # Positions are made outside: how many sizes of image there are differs from batch to batch.
        for parameter in self._outside:
            parameter.grad = None
        if positions_PW.requires_grad:  # they do not beside low-rank changes
            positions_PW.backward(self._positions.grad)
        return tuple(loss.clone() for loss in self._losses)

    def _record(self, batch: TrainingBatch, patches_PV: Tensor, positions_PW: Tensor) -> None:
        self._batch = replace(batch, pixels=(), grids=()).to(patches_PV.device)
        self._tables = self._batch.tables()
        self._patches = patches_PV.clone()
        self._positions = positions_PW.detach().clone().requires_grad_()
        # Other threads go on meanwhile: the one that pins batches, for one.
        self._graph, self._losses = record(self._backward, self._warm_up)
        self._outside = [parameter for parameter in self._parameters if parameter.grad is None]

    def _backward(self) -> tuple[Tensor, ...]:
        losses = self._of(self._batch, self._patches, self._positions)
        losses[0].backward()
        return tuple(loss.detach() for loss in losses)

    def _warm_up(self) -> None:
        for _ in range(WARM_UPS):  # what is compiled or tuned on first use
            self._clear_gradients()
            self._backward()
        self._clear_gradients()

    def _clear_gradients(self) -> None:
        for parameter in [*self._parameters, self._positions]:
            parameter.grad = None
