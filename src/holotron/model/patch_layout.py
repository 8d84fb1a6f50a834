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

ROPE_THETA = 10000.0


@dataclass(frozen=True)
class PatchLayout:
    """The order of an image's patches in the tower, window by window, and what attention there needs.

    order_P are the patches by their number, row by row. A run is a number of windows of one size, and the patches in
    each; without windows there is one with all. cos and sin are [P, 1, D].
    """

    order_P: Tensor
    runs: tuple[tuple[int, int], ...]
    cos: Tensor
    sin: Tensor

    @classmethod
    def build(cls, grid: Grid, head_dim: int, window: int | None, device: torch.device, dtype: torch.dtype) -> Self:
        """window: its side in patches. Windows are cut from the upper left corner; the last ones may be smaller."""
        rows, columns = grid
        number_RC = torch.arange(rows * columns, device=device).view(rows, columns)
        parts, runs = [], []
        for height, across in _cuts(rows, window or rows):
            for width, along in _cuts(columns, window or columns):
                windows = number_RC[across, along].unflatten(0, (-1, height)).unflatten(2, (-1, width))
                parts.append(windows.transpose(1, 2).flatten())
                runs.append((parts[-1].numel() // (height * width), height * width))
        order_P = torch.cat(parts)
        # float32 at least, as in the decoder.
        wide = torch.promote_types(dtype, torch.float32)
        half = head_dim // 2
        frequencies = ROPE_THETA ** -(torch.arange(0, half, 2, device=device, dtype=wide) / half)
        places_P2 = torch.stack([order_P // columns, order_P % columns], dim=-1).to(wide)
        angles = (places_P2[..., None] * frequencies).flatten(1)
        angles = torch.cat([angles, angles], dim=-1)[:, None]
        return cls(order_P, tuple(runs), angles.cos(), angles.sin())

    def whole(self) -> Self:
        """The same without windows: every patch attends to all of its image."""
        return replace(self, runs=((1, len(self.order_P)),))

    def attend(self, q_IPHD: Tensor, k_IPHD: Tensor, v_IPHD: Tensor) -> Tensor:
        q, k = (rotate(part.to(self.cos.dtype), self.cos, self.sin).to(v_IPHD.dtype) for part in (q_IPHD, k_IPHD))
        parts, start = [], 0
        for count, size in self.runs:
            here, shape = slice(start, start + count * size), (-1, size, *q.shape[2:])
            windows = [part[:, here].reshape(shape) for part in (q, k, v_IPHD)]
            parts.append(ops.image_attention(windows[0], windows[1], windows[2]).reshape(len(q), -1, *q.shape[2:]))
            start += count * size
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _cuts(length: int, side: int) -> list[tuple[int, slice]]:
    """A length cut into windows: as many whole ones as fit, then what is left."""
    whole = length // side * side
    cuts = [(side, slice(0, whole)), (length - whole, slice(whole, length))]
    return [(size, part) for size, part in cuts if part.start < part.stop]
