"""Matrices stored in 8 bits: whole numbers from -127 to 127, and a 16-bit scale for each GROUP of a row.

A checkpoint in this form is half the size of a 16-bit one. It is unpacked when it is read: what computes is the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 64  # columns that share a scale
SUFFIX = ".scale"  # of the name of the tensor with a matrix's scales
LIMIT = 127


def is_packable(tensor: Tensor) -> bool:
    """Whether a tensor is stored in 8 bits: matrices are; vectors, small and few, stay as they are."""
    return tensor.ndim == 2 and tensor.shape[1] % GROUP == 0


def pack(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest 8-bit numbers, and their scales [rows, groups]."""
    groups = matrix.float().unflatten(1, (-1, GROUP))
    # A group of zeros has any scale; the smallest normal one keeps the division finite.
    scale = (groups.abs().amax(-1) / LIMIT).half().clamp_min(torch.finfo(torch.float16).tiny)
    numbers = (groups / scale.float()[..., None]).round().clamp(-LIMIT, LIMIT).to(torch.int8)
    return numbers.flatten(1), scale


def unpack(numbers: Tensor, scale: Tensor) -> Tensor:
    """The matrix in float32."""
    return (numbers.unflatten(1, (-1, GROUP)).float() * scale.float()[..., None]).flatten(1)
