"""Into how many tiles, patches and tokens an image of some size is cut; arithmetic only, no pixels."""

from __future__ import annotations

import math
from functools import lru_cache

from holotron.model.config import QwenVisionConfig, VisionConfig
from holotron.model.errors import ConfigError, ImageError

Grid = tuple[int, int]

LONGEST_STRIP = 200  # times as long as wide, which Qwen's towers still take


def image_grids(width: int, height: int, vision: VisionConfig) -> tuple[Grid, ...]:
    """The patch grids (rows, columns) of an image of that size, in the order the tower gets them."""
    if isinstance(vision, QwenVisionConfig):
        return (scaled_grid(width, height, vision),)
    if vision.mode == "dynamic":
        return (patch_grid(width, height, vision),)
    columns, rows = tile_grid(width, height, vision)
    side = vision.tile_size // vision.patch_size
    return ((side, side),) * (rows * columns + thumbnails(rows * columns, vision))


def image_tokens(width: int, height: int, vision: VisionConfig) -> int:
    """How many tokens of the decoder an image of that size costs."""
    return sum(rows * columns // 4 for rows, columns in image_grids(width, height, vision))


def most_patches(vision: VisionConfig) -> int:
    """How many patches the tower sees together at most."""
    if isinstance(vision, QwenVisionConfig):
        # An image of 200 tokens in a row is not shrunk further, whatever the limit of pixels is.
        return max(vision.max_pixels // vision.patch_size**2, 4 * LONGEST_STRIP)
    return vision.max_patches if vision.mode == "dynamic" else (vision.tile_size // vision.patch_size) ** 2


def thumbnails(tiles: int, vision: VisionConfig) -> int:
    """One picture of the whole goes along where there are several tiles."""
    return int(vision.thumbnail and tiles > 1)


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


def scaled_grid(width: int, height: int, vision: QwenVisionConfig) -> Grid:
    """The (rows, columns) of patches of an image for Qwen's tower: whole tokens, its pixels within the limits.

    Each side is rounded to whole tokens. Where that leaves too many pixels or too few, both sides are scaled alike
    first and then rounded down or up.
    """
    _check_size(width, height)
    if max(width, height) > LONGEST_STRIP * min(width, height):
        times = f"more than {LONGEST_STRIP} times as long as wide"
        raise ImageError(f"an image of {width}×{height} is {times}; crop it first")
    token = 2 * vision.patch_size
    rows, columns = round(height / token), round(width / token)
    if rows * columns * token**2 > vision.max_pixels:
        scale = math.sqrt(height * width / vision.max_pixels)
        rows, columns = (max(1, math.floor(side / scale / token)) for side in (height, width))
    elif rows * columns * token**2 < vision.min_pixels:
        scale = math.sqrt(vision.min_pixels / (height * width))
        rows, columns = (math.ceil(side * scale / token) for side in (height, width))
    return 2 * rows, 2 * columns


def _patches_across(pixels: int, patch_size: int) -> int:
    """Patches that cover a side; an odd number that fits exactly gets one more, as in the published rounding."""
    whole, rest = divmod(pixels, patch_size)
    return whole + 1 if rest or whole % 2 else whole


def _even(side: int, other: int, max_patches: int) -> int:
    """The side made even: upwards where the budget allows it."""
    if side % 2 and (side + 1) * other > max_patches:
        return max(2, side - 1)
    return side + side % 2


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise ImageError(f"an image of {width}×{height} has no pixels")
