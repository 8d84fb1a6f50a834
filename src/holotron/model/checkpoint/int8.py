"""Matrices stored in 8 bits: whole numbers from -127 to 127, and a 16-bit scale for each GROUP of a row.

A checkpoint in this form is half the size of a 16-bit one. It is unpacked when it is read: what computes is the same.
With 12 bits a second tensor has sixteenths of each number, so that small changes of a short training are not rounded
back to where they began.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 64  # columns that share a scale
SUFFIX = ".scale"  # of the name of the tensor with a matrix's scales
REST = ".rest"  # of the one with its sixteenths, from -8 to 7, two to a byte
BITS = (8, 12)
LIMIT = 127


def is_packable(tensor: Tensor) -> bool:
    """Whether a tensor is stored in 8 or 12 bits: matrices are; vectors, small and few, stay as they are."""
    return tensor.ndim == 2 and tensor.shape[1] % GROUP == 0


def pack(matrix: Tensor, bits: int = 8) -> dict[str, Tensor]:
    """The nearest numbers and their scales [rows, groups], by what their names end in."""
    groups = matrix.float().unflatten(1, (-1, GROUP))
    # A group of zeros has any scale; the smallest normal one keeps the division finite.
    scale = (groups.abs().amax(-1) / LIMIT).half().clamp_min(torch.finfo(torch.float16).tiny)
    exact = (groups / scale.float()[..., None]).flatten(1)
    numbers = exact.round().clamp(-LIMIT, LIMIT)
    stored = {"": numbers.to(torch.int8), SUFFIX: scale}
    if bits == 12:
        sixteenths = ((exact - numbers) * 16).round().clamp(-8, 7) + 8
        stored[REST] = (sixteenths[:, ::2] + 16 * sixteenths[:, 1::2]).to(torch.uint8)
    return stored


def with_rest(numbers: Tensor, rest: Tensor) -> Tensor:
    """The numbers with their sixteenths."""
    sixteenths = torch.stack((rest & 15, rest >> 4), -1).flatten(1)
    return numbers.float() + (sixteenths.float() - 8) / 16


def unpack(numbers: Tensor, scale: Tensor) -> Tensor:
    """The matrix in float32."""
    return (numbers.unflatten(1, (-1, GROUP)).float() * scale.float()[..., None]).flatten(1)
