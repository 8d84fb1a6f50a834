"""Positions with three axes (M-RoPE): time, row and column.

Text counts on alike in all three. The tokens of an image share one time, and lie at the rows and columns of its grid,
counted from where the text stands; the text goes on behind the longer side. So a token's position is its number in the
sequence, moved by the images before it, and nothing has to be remembered but where images are and how large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from holotron.model.errors import ModelError
from holotron.model.grids import Grid


def mrope_shift(grid: Grid) -> int:
    """How much an image of that grid of patches moves the positions after it; never forwards."""
    rows, columns = grid
    return max(rows, columns) // 2 - rows * columns // 4


def mrope_positions(first: int, count: int, images: Iterable[tuple[int, Grid]]) -> NDArray[np.int64]:
    """Positions [3, count] of the tokens from number `first` on; images, in order, begin at a token and have a grid."""
    positions_3T = np.tile(np.arange(first, first + count, dtype=np.int64), (3, 1))
    shift = 0
    for start, (rows, columns) in images:
        if start >= first + count:
            break
        end = start + rows * columns // 4
        low, high = max(start, first), min(end, first + count)
        if low < high:
            row, column = np.divmod(np.arange(low - start, high - start), columns // 2)
            positions_3T[:, low - first : high - first] = start + shift
            positions_3T[1, low - first : high - first] += row
            positions_3T[2, low - first : high - first] += column
        step = mrope_shift((rows, columns))
        positions_3T[:, max(end - first, 0) :] += step
        shift += step
    return positions_3T


def positions_of_sequence(
    token_ids: Sequence[int] | NDArray[np.int64], image_token: int, grids: Iterator[Grid]
) -> NDArray[np.int64]:
    """Positions [3, length] of a whole sequence; takes the grids of the images in it, in order."""
    tokens = np.flatnonzero(np.asarray(token_ids) == image_token)
    images: list[tuple[int, Grid]] = []
    seen = 0
    while seen < len(tokens):
        first = int(tokens[seen])
        grid = next(grids, None)
        if grid is None:
            raise ModelError(f"token {first} belongs to an image, and there are no more grids of images")
        images.append((first, grid))
        seen += grid[0] * grid[1] // 4
    return mrope_positions(0, len(token_ids), images)
