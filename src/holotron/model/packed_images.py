"""Images of any sizes side by side in arrays of fixed size, with the tables that keep them apart: what training runs.

Shapes: P patches, row by row, K prefix tokens of one image, X = P + K · images positions of the tower, W tower width,
Y = P patches in the order of the pixel shuffle: four corners of an image token together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holotron.model.grids import Grid
from holotron.model.patch_layout import window_order
from holotron.ops import FixedPacking, move_rows


@dataclass(frozen=True)
class PackedImages:
    """`packing` says which positions of the tower belong to one image, `windows` which to one window of it.

    Windows, of towers that have them, are laid out one after another: theirs is the order of an image's positions.
    """

    packing: FixedPacking
    windows: FixedPacking | None
    places_X2: Tensor  # the row and column of the patch at each position
    prefix_XK: Tensor  # 1 where a position is the k-th prefix token
    patch_X: Tensor  # the patch at each position, where there is one
    is_patch_X: Tensor
    position_P: Tensor  # and the way back
    is_filled_P: Tensor
    corner_Y: Tensor  # the position of each corner
    square_X: Tensor  # and the way back

    @classmethod
    def build(
        cls,
        grids: Sequence[Grid],
        *,
        patches: int,
        images: int,
        prefix: int,
        longest: int,
        window: int | None = None,
        windows: int = 0,
        alike: bool = False,
    ) -> Self:
        """Tables for images of these grids, with room for so many patches and images of at most `longest` patches.

        window: the side of a window in patches, in towers that have them; windows: room for so many. alike: every image
        has `longest` patches.
        """
        positions = patches + prefix * images
        counts = np.array([rows * columns for rows, columns in grids], np.int64)
        used = int(counts.sum())
        # Each image's positions: its prefix tokens, then its patches.
        position_P = np.zeros(patches, np.int64)
        patch_X, is_patch_X = np.zeros(positions, np.int64), np.zeros(positions, np.bool_)
        places_X2 = np.zeros((positions, 2), np.int32)
        prefix_XK = np.zeros((positions, prefix), np.float32)
        corner_Y, square_X = np.zeros(patches, np.int64), np.zeros(positions, np.int64)
        sizes_of_windows = [np.zeros(0, np.int64)]
        patch = 0
        for index, (grid, count) in enumerate(zip(grids, counts.tolist(), strict=True)):
            start = patch + prefix * index
            prefix_XK[start : start + prefix] = np.eye(prefix, dtype=np.float32)
            order, places, sizes = _arrangement(grid, window)
            here = slice(start + prefix, start + prefix + count)
            patch_X[here], is_patch_X[here] = patch + order, True
            places_X2[here] = places
            position_P[patch + order] = np.arange(here.start, here.stop)
            corner_Y[patch : patch + count] = position_P[patch + shuffle_order(grid)]
            sizes_of_windows.append(sizes)
            patch += count
        square_X[corner_Y[:used]] = np.arange(used)
        cut = None
        if window is not None:
            lengths_S = np.concatenate(sizes_of_windows)
            cut = FixedPacking.build(lengths_S, tokens=positions, sequences=windows, longest=window**2)
        return cls(
            FixedPacking.build(
                counts + prefix,
                tokens=positions,
                sequences=images,
                longest=prefix + longest,
                each=prefix + longest if alike else 0,
            ),
            windows=cut,
            places_X2=torch.from_numpy(places_X2),
            prefix_XK=torch.from_numpy(prefix_XK),
            patch_X=torch.from_numpy(patch_X),
            is_patch_X=torch.from_numpy(is_patch_X),
            position_P=torch.from_numpy(position_P),
            is_filled_P=torch.from_numpy(np.arange(patches) < used),
            corner_Y=torch.from_numpy(corner_Y),
            square_X=torch.from_numpy(square_X),
        )

    def arranged(self, x_PW: Tensor) -> Tensor:
        """Patches at their positions in the tower, and zeros at those of prefix tokens."""
        return move_rows(x_PW, self.patch_X, self.is_patch_X, self.position_P, self.is_filled_P)

    def corners(self, x_XW: Tensor) -> Tensor:
        """The patches alone, in the order of the pixel shuffle."""
        return move_rows(x_XW, self.corner_Y, self.is_filled_P, self.square_X, self.is_patch_X)


@lru_cache(256)
def _arrangement(grid: Grid, window: int | None) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """The patches of an image in the tower's order, their rows and columns, and the sizes of its windows."""
    order, runs = window_order(grid, window)
    places = torch.stack([order // grid[1], order % grid[1]], dim=-1).int()
    sizes = [size for count, size in runs for _ in range(count)]
    return order.numpy(), places.numpy(), np.array(sizes, np.int64)


def count_windows(grid: Grid, window: int | None) -> int:
    """How many windows of that side an image of that grid has; none where the tower has none."""
    return -(-grid[0] // window) * -(-grid[1] // window) if window else 0


def shuffle_order(grid: Grid) -> NDArray[np.int64]:
    """The patches of a grid in the order of the pixel shuffle."""
    rows, columns = grid
    return np.arange(rows * columns).reshape(rows // 2, 2, columns // 2, 2).transpose(0, 2, 1, 3).ravel()
