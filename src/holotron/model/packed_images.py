"""Images of any sizes side by side in arrays of fixed size, with the tables that keep them apart: what training runs.

Shapes: P patches, K prefix tokens of one image, X = P + K · images positions of the tower, W tower width, Y = P patches
in the order of the pixel shuffle: four corners of an image token together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holotron.model.grids import Grid
from holotron.ops import FixedPacking, move_rows


@dataclass(frozen=True)
class PackedImages:
    """`packing` says which positions of the tower belong to one image."""

    packing: FixedPacking
    prefix_XK: Tensor  # 1 where a position is the k-th prefix token
    patch_X: Tensor  # the patch at each position, where there is one
    is_patch_X: Tensor
    position_P: Tensor  # and the way back
    is_filled_P: Tensor
    corner_Y: Tensor  # the position of each corner
    square_X: Tensor  # and the way back

    @classmethod
    def build(cls, grids: Sequence[Grid], *, patches: int, images: int, prefix: int, longest: int) -> Self:
        """Tables for images of these grids, with room for so many patches and images of at most `longest` patches."""
        positions = patches + prefix * images
        counts = np.array([rows * columns for rows, columns in grids], np.int64)
        used = int(counts.sum())
        # Each image's positions: its prefix tokens, then its patches.
        position_P = np.zeros(patches, np.int64)
        position_P[:used] = np.arange(used) + np.repeat(prefix * np.arange(1, len(grids) + 1), counts)
        patch_X, is_patch_X = np.zeros(positions, np.int64), np.zeros(positions, np.bool_)
        patch_X[position_P[:used]], is_patch_X[position_P[:used]] = np.arange(used), True
        prefix_XK = np.zeros((positions, prefix), np.float32)
        corner_Y, square_X = np.zeros(patches, np.int64), np.zeros(positions, np.int64)
        patch = 0
        for index, (grid, count) in enumerate(zip(grids, counts.tolist(), strict=True)):
            start = patch + prefix * index
            prefix_XK[start : start + prefix] = np.eye(prefix, dtype=np.float32)
            corner_Y[patch : patch + count] = start + prefix + shuffle_order(grid)
            patch += count
        square_X[corner_Y[:used]] = np.arange(used)
        return cls(
            FixedPacking.build(counts + prefix, tokens=positions, sequences=images, longest=prefix + longest),
            prefix_XK=torch.from_numpy(prefix_XK),
            patch_X=torch.from_numpy(patch_X),
            is_patch_X=torch.from_numpy(is_patch_X),
            position_P=torch.from_numpy(position_P),
            is_filled_P=torch.from_numpy(np.arange(patches) < used),
            corner_Y=torch.from_numpy(corner_Y),
            square_X=torch.from_numpy(square_X),
        )

    def insert_prefix(self, x_PW: Tensor, prefix_KW: Tensor) -> Tensor:
        """Patches and prefix tokens at their positions in the tower."""
        x_XW = move_rows(x_PW, self.patch_X, self.is_patch_X, self.position_P, self.is_filled_P)
        return x_XW + self.prefix_XK.to(x_XW.dtype) @ prefix_KW

    def corners(self, x_XW: Tensor) -> Tensor:
        """The patches alone, in the order of the pixel shuffle."""
        return move_rows(x_XW, self.corner_Y, self.is_filled_P, self.square_X, self.is_patch_X)


def shuffle_order(grid: Grid) -> NDArray[np.int64]:
    """The patches of a grid in the order of the pixel shuffle."""
    rows, columns = grid
    return np.arange(rows * columns).reshape(rows // 2, 2, columns // 2, 2).transpose(0, 2, 1, 3).ravel()
