"""How an image becomes patches for the tower: cut into square tiles, or whole at a resolution of its own.

Both ways end in the same thing, a list of patch grids and their patches packed one after another.
Shapes: P patches, C colours, R/K tile rows/columns, r/k patch rows/columns, h/w pixel rows/columns of a patch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from holotron.model.config import VisionConfig
from holotron.model.errors import ConfigError, ImageError

Grid = tuple[int, int]


@dataclass(frozen=True)
class ProcessedImage:
    """An image as the tower takes it.

    patches is float32 [P, 3·patch²], each patch channel-major, row by row within each grid of (rows, columns);
    tokens is what the image costs the decoder, size the original (width, height).
    """

    patches: torch.Tensor
    grids: tuple[Grid, ...]
    tokens: int
    size: tuple[int, int]


class ImageProcessor:
    """Turns RGB images into patches the way one tower expects them."""

    def __init__(self, vision: VisionConfig) -> None:
        self.vision = vision

    def grids(self, width: int, height: int) -> tuple[Grid, ...]:
        """The patch grids (rows, columns) of an image of that size, in the order the tower gets them."""
        if self.vision.mode == "dynamic":
            return (patch_grid(width, height, self.vision),)
        columns, rows = tile_grid(width, height, self.vision)
        side = self.vision.tile_size // self.vision.patch_size
        return ((side, side),) * (rows * columns + self._thumbnails(rows * columns))

    def tokens(self, width: int, height: int) -> int:
        """How many image tokens an image of that size costs."""
        return sum(rows * columns // 4 for rows, columns in self.grids(width, height))

    def __call__(self, image: Image.Image) -> ProcessedImage:
        if image.mode != "RGB":
            raise ImageError(f"the image is in mode {image.mode}; RGB is needed: pass it through load_image first")
        grids = self.grids(*image.size)
        patches_PCX = torch.empty(sum(rows * columns for rows, columns in grids), 3, self.vision.patch_size**2)
        if self.vision.mode == "dynamic":
            self._fill_whole(patches_PCX, image, grids[0])
        else:
            self._fill_tiles(patches_PCX, image)
        # Three plain steps rather than one fused: bit for bit what the usual processors compute.
        patches_PCX.div_(255).sub_(_per_colour(self.vision.mean)).div_(_per_colour(self.vision.std))
        tokens = sum(rows * columns // 4 for rows, columns in grids)
        return ProcessedImage(patches_PCX.flatten(1), grids, tokens, image.size)

    def _thumbnails(self, tiles: int) -> int:
        return int(self.vision.thumbnail and tiles > 1)

    def _fill_tiles(self, patches_PCX: torch.Tensor, image: Image.Image) -> None:
        columns, rows = tile_grid(*image.size, self.vision)
        tile, patch = self.vision.tile_size, self.vision.patch_size
        side = tile // patch
        filled = 0
        for grid_columns, grid_rows in [(columns, rows)] + [(1, 1)] * self._thumbnails(rows * columns):
            resized = image.resize((tile * grid_columns, tile * grid_rows), Image.Resampling.BICUBIC)
            pixels = torch.from_numpy(np.array(resized))
            pixels_RrhKkwC = pixels.view(grid_rows, side, patch, grid_columns, side, patch, 3)
            tiles_RKrkChw = pixels_RrhKkwC.permute(0, 3, 1, 4, 6, 2, 5)
            count = grid_rows * grid_columns * side**2
            # Rearranging bytes and converting after moves a quarter of the memory that the other order would.
            patches_PCX[filled : filled + count] = tiles_RKrkChw.reshape(count, 3, patch**2)
            filled += count

    def _fill_whole(self, patches_PCX: torch.Tensor, image: Image.Image, grid: Grid) -> None:
        (rows, columns), patch = grid, self.vision.patch_size
        size = (rows * patch, columns * patch)
        patches_rkChw = patches_PCX.view(rows, columns, 3, patch, patch)
        # One colour at a time: a large photograph in float32 would take four times its decoded size at once.
        for colour in range(3):
            plane = torch.from_numpy(np.array(image.getchannel(colour))).float()[None, None]
            if plane.shape[-2:] != size:
                # Not clamped to 0..255: the tower was trained with the overshoot of the bicubic kernel.
                plane = functional.interpolate(plane, size, mode="bicubic", antialias=True, align_corners=False)
            patches_rkChw[:, :, colour] = plane.view(rows, patch, columns, patch).permute(0, 2, 1, 3)


def tile_grid(width: int, height: int, vision: VisionConfig) -> tuple[int, int]:
    """The (columns, rows) of tiles whose aspect ratio is closest to the image's; equal ratios differ in detail.

    Grids are tried from small to large. One that is as close as the best so far replaces it if the image has more
    than half the pixels that the grid shows, so small images are not blown up into many tiles.
    """
    _check_size(width, height)
    ratio = width / height
    best, best_difference = (1, 1), math.inf
    for columns, rows in _tile_grids(vision.max_tiles):
        difference = abs(ratio - columns / rows)
        enough = width * height > 0.5 * vision.tile_size**2 * columns * rows
        if difference < best_difference or (difference == best_difference and enough):
            best, best_difference = (columns, rows), difference
    return best


@lru_cache
def _tile_grids(max_tiles: int) -> tuple[tuple[int, int], ...]:
    """All (columns, rows) of at most max_tiles, by area.

    The order among equal areas cannot matter: two of them are equally close only to the ratio halfway between theirs,
    and some other grid is always closer to that one.
    """
    sides = range(1, max_tiles + 1)
    grids = [(columns, rows) for columns in sides for rows in sides if columns * rows <= max_tiles]
    return tuple(sorted(grids, key=lambda grid: (grid[0] * grid[1], grid)))


def patch_grid(width: int, height: int, vision: VisionConfig) -> Grid:
    """The (rows, columns) of patches for a whole image: its own grid, scaled into the budget, both sides even."""
    _check_size(width, height)
    if vision.max_patches < 4:
        raise ConfigError(f"max_patches is {vision.max_patches}; one token already takes 4 patches")
    rows, columns = _patches_across(height, vision.patch_size), _patches_across(width, vision.patch_size)

    shrink = min(math.sqrt(vision.max_patches / (rows * columns)), 1.0)
    rows, columns = math.floor(shrink * rows), math.floor(shrink * columns)
    if not rows or not columns:
        # A strip so long that its thin side vanishes: it keeps the two patches a token needs, the long side the rest.
        longest = vision.max_patches // 4 * 2
        return (2, longest) if not rows else (longest, 2)

    if rows * columns < vision.min_patches < vision.max_patches:
        grow = math.sqrt(vision.min_patches / (rows * columns))
        rows, columns = math.ceil(grow * rows), math.ceil(grow * columns)

    rows = _even(rows, columns, vision.max_patches)
    return rows, _even(columns, rows, vision.max_patches)


def _patches_across(pixels: int, patch_size: int) -> int:
    """Patches that cover a side; an odd number that fits exactly gets one more, as in the published rounding."""
    whole, rest = divmod(pixels, patch_size)
    return whole + 1 if rest or whole % 2 else whole


def _even(side: int, other: int, max_patches: int) -> int:
    """The side made even: upwards where the budget allows it."""
    if side % 2 and (side + 1) * other > max_patches:
        return max(2, side - 1)
    return side + side % 2


def _per_colour(values: tuple[float, float, float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"an image of {width}×{height} has no pixels")
