"""How an image becomes patches for the tower: cut into square tiles, or whole at a resolution of its own.

Both ways end in the same thing, a list of patch grids and their patches packed one after another.
Shapes: I images, P patches, C colours, R/K tile rows/columns, r/k patch rows/columns, H/W and h/w pixel rows/columns of
an image and of a patch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from holotron.model.config import VisionConfig
from holotron.model.errors import ImageError
from holotron.model.grids import Grid, image_grids, thumbnails, tile_grid

WHITE = (255.0, 255.0, 255.0)
_PINS = torch.cuda.is_available()


@dataclass(frozen=True)
class ProcessedImage:
    """An image as the tower takes it.

    patches is float32 [P, 3·patch²], each patch channel-major, row by row within each grid of (rows, columns);
    tokens is what the image costs the decoder, size the original (width, height). pixels, in 8 bits, is an image that
    is not cut into tiles, as it is or scaled: [height, width, 3]; or its tiles: [tiles, height, width, 3]. Patches may
    then be left to be made on the device.
    """

    grids: tuple[Grid, ...]
    tokens: int
    size: tuple[int, int]
    patches: Tensor | None = None
    pixels: Tensor | None = None


class ImageProcessor:
    """Turns RGB images into patches the way one tower expects them.

    on_device: leave patches to the device that encodes them, and the resizing of whole images: both take far less time
    there, and a quarter of the bytes crosses to it.
    """

    def __init__(self, vision: VisionConfig, *, on_device: bool = False) -> None:
        self.vision = vision
        self.on_device = on_device

    def __call__(self, image: Image.Image) -> ProcessedImage:
        if image.mode != "RGB":
            raise ImageError(f"the image is in mode {image.mode}; RGB is needed: pass it through load_image first")
        grids = image_grids(*image.size, self.vision)
        tokens = sum(rows * columns // 4 for rows, columns in grids)
        if self.vision.mode == "tiles" and self.on_device:
            tiles = torch.from_numpy(tower_images(image, self.vision))
            # From pinned memory it crosses while the thread that encodes goes on.
            return ProcessedImage(grids, tokens, image.size, pixels=tiles.pin_memory() if _PINS else tiles)
        if self.vision.mode == "tiles":
            return ProcessedImage(grids, tokens, image.size, self._patches_of_tiles(image, grids))
        if self.leaves_pixels:
            return self.of_pixels(np.array(image))
        size = image.size
        if self.vision.mode == "scaled":
            image = _scaled(image, self.vision)
        pixels = torch.from_numpy(np.array(image))
        patches = None if self.on_device else patches_of_whole_images(pixels[None], grids[0], self.vision)
        return ProcessedImage(grids, tokens, size, patches, pixels)

    @property
    def leaves_pixels(self) -> bool:
        """Whether an image is given to the device as it is."""
        return self.on_device and self.vision.mode == "dynamic"

    def of_pixels(self, pixels: NDArray[np.uint8]) -> ProcessedImage:
        """An image in 8 bits [H, W, 3], where it `leaves_pixels`."""
        size = pixels.shape[1], pixels.shape[0]
        [grid] = image_grids(*size, self.vision)
        return ProcessedImage((grid,), grid[0] * grid[1] // 4, size, pixels=torch.from_numpy(pixels))

    def _patches_of_tiles(self, image: Image.Image, grids: tuple[Grid, ...]) -> Tensor:
        patches_PCX = torch.empty(sum(rows * columns for rows, columns in grids), 3, self.vision.patch_size**2)
        patch = self.vision.patch_size
        side = self.vision.tile_size // patch
        filled = 0
        for pixels, rows, columns in _resized(image, self.vision):
            pixels_RrhKkwC = torch.from_numpy(pixels).view(rows, side, patch, columns, side, patch, 3)
            tiles_RKrkChw = pixels_RrhKkwC.permute(0, 3, 1, 4, 6, 2, 5)
            count = rows * columns * side**2
            # Rearranging bytes and converting after moves a quarter of the memory that the other order would.
            patches_PCX[filled : filled + count] = tiles_RKrkChw.reshape(count, 3, patch**2)
            filled += count
        return _normalised(patches_PCX, self.vision)


def tower_images(image: Image.Image, vision: VisionConfig) -> NDArray[np.uint8]:
    """What the tower is shown of an RGB image, as pixels [I, H, W, C]: its tiles, or the image itself or scaled."""
    if vision.mode != "tiles":
        return np.array(_scaled(image, vision) if vision.mode == "scaled" else image)[None]
    tile = vision.tile_size
    parts = [
        pixels.reshape(rows, tile, columns, tile, 3).swapaxes(1, 2).reshape(-1, tile, tile, 3)
        for pixels, rows, columns in _resized(image, vision)
    ]
    return np.ascontiguousarray(np.concatenate(parts))


def _scaled(image: Image.Image, vision: VisionConfig) -> Image.Image:
    """The image at the size of its grid, by Pillow: these towers were trained with its rounding to 8 bits."""
    [(rows, columns)], patch = image_grids(*image.size, vision), vision.patch_size
    return image.resize((columns * patch, rows * patch), Image.Resampling.BICUBIC)


def _resized(image: Image.Image, vision: VisionConfig) -> Iterator[tuple[NDArray[np.uint8], int, int]]:
    """The image at the size of its tiles, then that of its thumbnail, each with its rows and columns of tiles."""
    columns, rows = tile_grid(*image.size, vision)
    for across, down in [(columns, rows)] + [(1, 1)] * thumbnails(rows * columns, vision):
        size = (vision.tile_size * across, vision.tile_size * down)
        yield np.array(image.resize(size, Image.Resampling.BICUBIC)), down, across


def patches_of_whole_images(pixels_IHWC: Tensor, grid: Grid, vision: VisionConfig) -> Tensor:
    """Normalised patches [I·rows·columns, 3·patch²] of images of one size, in 8 bits, on the device they are on."""
    (rows, columns), patch = grid, vision.patch_size
    size = (rows * patch, columns * patch)
    patches_PCX = torch.empty(len(pixels_IHWC) * rows * columns, 3, patch**2, device=pixels_IHWC.device)
    patches_IrkChw = patches_PCX.view(-1, rows, columns, 3, patch, patch)
    # One colour at a time: a large photograph in float32 would take four times its decoded size at once.
    for colour in range(3):
        plane = pixels_IHWC[..., colour].float()[:, None]
        if plane.shape[-2:] != size:
            # Not clamped to 0..255: the tower was trained with the overshoot of the bicubic kernel.
            plane = functional.interpolate(plane, size, mode="bicubic", antialias=True, align_corners=False)
        patches_IrkChw[:, :, :, colour] = plane.view(-1, rows, patch, columns, patch).permute(0, 1, 3, 2, 4)
    return _normalised(patches_PCX, vision)


def _normalised(patches_PCX: Tensor, vision: VisionConfig) -> Tensor:
    # Three plain steps rather than one fused: bit for bit what the usual processors compute. A GPU would multiply by
    # the inverse of a number; by a tensor it divides.
    white, mean, std = (_per_colour(values, patches_PCX.device) for values in (WHITE, vision.mean, vision.std))
    return patches_PCX.div_(white).sub_(mean).div_(std).flatten(1)


@cache
def _per_colour(values: tuple[float, float, float], device: torch.device) -> Tensor:
    """Made once: bringing them to a GPU would wait for all that it has yet to do."""
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None]
