"""A part of a parameter, read from a checkpoint without the rest of it."""

from __future__ import annotations

from torch import Tensor

from holotron.model.checkpoint.names import Stored
from holotron.model.checkpoint.reader import OpenCheckpoint, scale_tensor, stored_tensor, unpacked
from holotron.model.checkpoint.storage import first_non_finite, open_tensors
from holotron.model.errors import CheckpointError


def read_rows(checkpoint: OpenCheckpoint, name: str, start: int, out: Tensor) -> None:
    """Fill a tensor with the rows of a parameter from number `start` on: entries of its first axis."""
    if name not in checkpoint.plan:
        out.fill_(checkpoint.unstored(name))
        return
    rows, end = len(checkpoint.model.get_parameter(name)), start + len(out)
    for stored in checkpoint.plan[name]:
        first = stored.index * (rows // stored.count)  # of those that this tensor has
        low, high = max(start, first), min(end, first + rows // stored.count)
        if low < high:
            _read(checkpoint, stored, low - first, high - first, out[low - start : high - start])
    if first_non_finite([(name, out)]):
        raise CheckpointError(f"{name} holds NaN or infinity; the checkpoint is damaged")


def _read(checkpoint: OpenCheckpoint, stored: Stored, low: int, high: int, out: Tensor) -> None:
    header = checkpoint.headers[stored.name]
    with open_tensors(header.file) as tensors:
        scale = scale_tensor(stored.name, checkpoint.headers, tensors, out.device)
        if scale is not None:
            out.copy_(unpacked(stored_tensor(stored.name, checkpoint.headers, tensors), scale)[low:high])
            return
        part: Tensor = tensors.get_tensor(stored.name) if stored.stacked else tensors.get_slice(stored.name)[low:high]
        out.copy_(part.transpose(-2, -1) if stored.transposed else part)
