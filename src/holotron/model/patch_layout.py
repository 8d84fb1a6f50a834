"""How the patches of an image lie in Qwen's vision towers: rotated by row and column, and attending within windows.

Shapes: I images of one size, P patches each, H heads, D width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from holotron import ops
from holotron.model.grids import Grid
from holotron.model.mixers import rotate
from holotron.ops import FixedPacking

ROPE_THETA = 10000.0


@dataclass(frozen=True)
class PatchRotation:
    """cos and sin of the rotary embedding by row and column, [..., P, 1, D]."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, places_P2: Tensor, head_dim: int, dtype: torch.dtype) -> Self:
        """For patches at these rows and columns."""
        # float32 at least, as in the decoder.
        wide = torch.promote_types(dtype, torch.float32)
        half = head_dim // 2
        frequencies = ROPE_THETA ** -(torch.arange(0, half, 2, device=places_P2.device, dtype=wide) / half)
        angles = (places_P2.to(wide)[..., None] * frequencies).flatten(1)
        angles = torch.cat([angles, angles], dim=-1)[:, None]
        return cls(angles.cos(), angles.sin())

    def __call__(self, x_PHD: Tensor) -> Tensor:
        return rotate(x_PHD.to(self.cos.dtype), self.cos, self.sin).to(x_PHD.dtype)


@dataclass(frozen=True)
class PatchLayout:
    """The order of an image's patches in the tower, window by window, and what attention there needs.

    order_P are the patches by their number, row by row. A run is a number of windows of one size, and the patches in
    each; without windows there is one with all.
    """

    order_P: Tensor
    runs: tuple[tuple[int, int], ...]
    rotation: PatchRotation

    @classmethod
    def build(cls, grid: Grid, head_dim: int, window: int | None, device: torch.device, dtype: torch.dtype) -> Self:
        order_P, runs = window_order(grid, window, device)
        columns = grid[1]
        places_P2 = torch.stack([order_P // columns, order_P % columns], dim=-1)
        return cls(order_P, runs, PatchRotation.of(places_P2, head_dim, dtype))

    def whole(self) -> Self:
        """The same without windows: every patch attends to all of its image."""
        return replace(self, runs=((1, len(self.order_P)),))

    def attend(self, q_IPHD: Tensor, k_IPHD: Tensor, v_IPHD: Tensor) -> Tensor:
        q, k = self.rotation(q_IPHD), self.rotation(k_IPHD)
        parts, start = [], 0
        for count, size in self.runs:
            here, shape = slice(start, start + count * size), (-1, size, *q.shape[2:])
            windows = [part[:, here].reshape(shape) for part in (q, k, v_IPHD)]
            parts.append(ops.image_attention(windows[0], windows[1], windows[2]).reshape(len(q), -1, *q.shape[2:]))
            start += count * size
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


@dataclass(frozen=True)
class PackedLayout:
    """The same of images of any sizes side by side: `packing` bounds what attends to each other, windows or images."""

    packing: FixedPacking
    rotation: PatchRotation

    def attend(self, q_XHD: Tensor, k_XHD: Tensor, v_XHD: Tensor) -> Tensor:
        return ops.image_attention(self.rotation(q_XHD), self.rotation(k_XHD), v_XHD, self.packing)


def window_order(
    grid: Grid, window: int | None, device: torch.device | str = "cpu"
) -> tuple[Tensor, tuple[tuple[int, int], ...]]:
    """The patches of a grid window by window, and how many windows of how many patches follow each other.

    window: its side in patches. Windows are cut from the upper left corner; the last ones may be smaller.
    """
    rows, columns = grid
    number_RC = torch.arange(rows * columns, device=device).view(rows, columns)
    parts, runs = [], []
    for height, across in _cuts(rows, window or rows):
        for width, along in _cuts(columns, window or columns):
            windows = number_RC[across, along].unflatten(0, (-1, height)).unflatten(2, (-1, width))
            parts.append(windows.transpose(1, 2).flatten())
            runs.append((parts[-1].numel() // (height * width), height * width))
    return torch.cat(parts), tuple(runs)


def _cuts(length: int, side: int) -> list[tuple[int, slice]]:
    """A length cut into windows: as many whole ones as fit, then what is left."""
    whole = length // side * side
    cuts = [(side, slice(0, whole)), (length - whole, slice(whole, length))]
    return [(size, part) for size, part in cuts if part.start < part.stop]
