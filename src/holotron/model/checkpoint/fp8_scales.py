"""Published checkpoints in 8 bits (e4m3): which scales belong to a matrix, and what it is with them.

Three layouts are in use. Block scales of 128 by 128 are called NAME_scale_inv (DeepSeek, Qwen); a scale for the whole
matrix or for each row is called NAME_scale (ModelOpt, compressed-tensors, whose blocks have that name, too). All are
factors. Scales of inputs that were measured beforehand are passed over, because inputs are scaled row by row here; and
so are those of keys and values, which are kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torch import Tensor

from holotron.model.checkpoint.storage import TensorHeader
from holotron.model.errors import CheckpointError

STORED = "F8_E4M3"
BLOCK = 128  # rows and columns that share a scale
SUFFIXES = ("_scale_inv", "_scale")
_SCALE_TYPES = ("F32", "F16", "BF16")
PASSED_OVER = re.compile(r"\.(input_scale|k_scale|v_scale)$")


def scale_of(name: str, headers: Mapping[str, TensorHeader]) -> str:
    """The name of the tensor with a matrix's scales; an error where there is none, or none that fits."""
    found = next((name + suffix for suffix in SUFFIXES if name + suffix in headers), None)
    if found is None:
        named = " or ".join(name + suffix for suffix in SUFFIXES)
        raise CheckpointError(f"{name} is stored as {STORED}, but there is no {named} beside it; use the BF16 release")
    shape, header = headers[name].shape, headers[found]
    if len(shape) != 2 or header.shape not in _scale_shapes(*shape) or header.dtype not in _SCALE_TYPES:
        raise CheckpointError(
            f"{found} is {header.dtype} {list(header.shape)} for a matrix of {list(shape)}; a scale is one number, one "
            f"for each row, or one for each {BLOCK} by {BLOCK} of it; use the BF16 release"
        )
    return found


def _scale_shapes(rows: int, columns: int) -> Iterator[tuple[int, ...]]:
    yield from ((), (1,), (1, 1), (rows,), (rows, 1), (-(-rows // BLOCK), -(-columns // BLOCK)))


def unpack(values_OI: Tensor, scale: Tensor) -> Tensor:
    """The matrix in float32."""
    rows, columns = values_OI.shape
    wide = scale.float()
    if wide.numel() == 1:
        return values_OI.float() * wide.reshape(())
    if wide.ndim == 1 or wide.shape == (rows, 1):
        return values_OI.float() * wide.reshape(rows, 1)
    spread = wide.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]
    return values_OI.float() * spread


def by_row(values_OI: Tensor, scale: Tensor) -> tuple[Tensor, Tensor] | None:
    """The same numbers with a scale for each row; None where scales change within a row."""
    rows = len(values_OI)
    if scale.numel() == 1 or scale.shape in ((rows,), (rows, 1)):
        return values_OI, scale.float().reshape(-1).expand(rows).contiguous()
    return None
