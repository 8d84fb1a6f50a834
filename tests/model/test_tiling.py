"""Images become the grids and patches that the published processors make of them."""

from __future__ import annotations

import ast
import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from PIL import Image

from holotron.model.config import VisionConfig
from holotron.model.errors import ConfigError, ImageError
from holotron.model.grids import image_grids, image_tokens, patch_grid, tile_grid
from holotron.model.tiling import ImageProcessor

TILES = VisionConfig()
DYNAMIC = VisionConfig(mode="dynamic")
SMALL = VisionConfig(patch_size=4, max_image_size=64, tile_size=16, max_tiles=6)


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def normalised(pixels_HWC: np.ndarray, vision: VisionConfig) -> np.ndarray:
    return (pixels_HWC.astype(np.float64) / 255 - vision.mean) / vision.std


def unpacked(patches: torch.Tensor, grid: tuple[int, int], patch: int) -> np.ndarray:
    """Patches of one grid put back together, as rows × columns × colours."""
    rows, columns = grid
    picture = np.empty((rows * patch, columns * patch, 3))
    for index, values in enumerate(patches.numpy().reshape(rows * columns, 3, patch, patch)):
        top, left = index // columns * patch, index % columns * patch
        picture[top : top + patch, left : left + patch] = values.transpose(1, 2, 0)
    return picture


# ---- tiles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "tiles", "tokens"),
    [
        (512, 512, 1, 256),
        (1024, 768, 12 + 1, 3328),
        (1280, 720, 2 + 1, 768),
        (1280, 800, 6 + 1, 1792),
        (1366, 768, 8 + 1, 2304),
        (1920, 1080, 8 + 1, 2304),
        (3840, 2160, 8 + 1, 2304),
        (1204, 1204, 9 + 1, 2560),
        (481, 202, 10 + 1, 2816),
    ],
)
def test_known_sizes_have_their_known_number_of_tiles(width: int, height: int, tiles: int, tokens: int) -> None:
    processor = ImageProcessor(TILES)
    assert image_tokens(width, height, processor.vision) == tokens
    assert image_grids(width, height, processor.vision) == ((32, 32),) * tiles


def test_order_of_equal_areas_cannot_matter() -> None:
    for max_tiles in range(1, 41):
        sides = range(1, max_tiles + 1)
        grids = [(columns, rows) for columns in sides for rows in sides if columns * rows <= max_tiles]
        ratios = {Fraction(*grid) for grid in grids}
        for one in grids:
            for other in grids:
                if one < other and one[0] * one[1] == other[0] * other[1]:
                    halfway = (Fraction(*one) + Fraction(*other)) / 2
                    assert min(abs(ratio - halfway) for ratio in ratios) < abs(Fraction(*one) - halfway)


@given(st.integers(1, 32_768), st.integers(1, 32_768), st.integers(1, 24))
def test_tile_grid_has_the_closest_ratio(width: int, height: int, max_tiles: int) -> None:
    columns, rows = tile_grid(width, height, replace(TILES, max_tiles=max_tiles))
    assert 1 <= columns * rows <= max_tiles
    sides = range(1, max_tiles + 1)
    closest = min(abs(width / height - i / j) for i in sides for j in sides if i * j <= max_tiles)
    assert abs(width / height - columns / rows) == closest


def test_tiles_are_crops_of_the_resized_image_and_then_the_thumbnail() -> None:
    image = noise(60, 31)
    result = ImageProcessor(SMALL)(image)
    assert tile_grid(60, 31, SMALL) == (2, 1)
    assert result.grids == ((4, 4),) * 3
    assert (result.tokens, result.size) == (12, (60, 31))
    assert result.patches.dtype == torch.float32
    resized = image.resize((32, 16), Image.Resampling.BICUBIC)
    boxes = [
        resized.crop((0, 0, 16, 16)),
        resized.crop((16, 0, 32, 16)),
        image.resize((16, 16), Image.Resampling.BICUBIC),
    ]
    for tile, patches in zip(boxes, result.patches.split(16), strict=True):
        expected = normalised(np.asarray(tile), SMALL)
        assert np.allclose(unpacked(patches, (4, 4), 4), expected, atol=1e-6)


def test_tiles_go_row_by_row() -> None:
    image = Image.new("RGB", (48, 32))
    for index in range(6):
        image.paste((index * 40,) * 3, (index % 3 * 16, index // 3 * 16, index % 3 * 16 + 16, index // 3 * 16 + 16))
    vision = replace(SMALL, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    result = ImageProcessor(vision)(image)
    assert tile_grid(48, 32, vision) == (3, 2)
    centres = [round(255 * float(tile[5, 5])) for tile in result.patches.split(16)]
    assert centres[:6] == [0, 40, 80, 120, 160, 200]


def test_single_tile_has_no_thumbnail_and_thumbnails_can_be_off() -> None:
    assert len(image_grids(300, 300, TILES)) == 1
    assert len(image_grids(1920, 1080, replace(TILES, thumbnail=False))) == 8


# ---- whole images ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published() -> Callable[..., tuple[int, int]]:
    """The published rounding, cut out of its file: the module itself needs torchvision."""
    package = importlib.util.find_spec("transformers")
    if package is None or package.origin is None:
        pytest.skip("transformers is not installed")
    path = Path(package.origin).parent / "models/nemotron_h_omni/image_processing_nemotron_h_omni.py"
    if not path.is_file():
        pytest.skip(f"transformers no longer has {path.name}")
    wanted = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "get_patch_grid_size"
    ]
    if not wanted:
        pytest.skip(f"{path.name} no longer has get_patch_grid_size")
    namespace: dict[str, object] = {"math": math}
    exec(compile(ast.Module(body=list(wanted), type_ignores=[]), path.name, "exec"), namespace)
    function = namespace["get_patch_grid_size"]
    assert callable(function)
    return function


@given(
    st.integers(1, 32_768),
    st.integers(1, 32_768),
    st.sampled_from([(1024, 13312), (64, 4096), (4, 16), (256, 256), (300, 256), (100, 101), (1, 10**6)]),
    st.sampled_from([14, 16]),
)
@example(1, 32_768, (1024, 13312), 16)
@example(528, 528, (1024, 13312), 16)
@example(16, 16, (4, 16), 16)
def test_patch_grid_agrees_with_the_published_one(
    published: Callable[..., tuple[int, int]], width: int, height: int, limits: tuple[int, int], patch: int
) -> None:
    low, high = limits
    vision = VisionConfig(mode="dynamic", patch_size=patch, max_image_size=64 * patch, tile_size=32 * patch,
                          min_patches=low, max_patches=high)  # fmt: skip
    try:
        expected = published(height, width, patch, 2, low, high)
    except ZeroDivisionError:
        expected = (0, 0)
    assume(0 not in expected)
    assert patch_grid(width, height, vision) == expected


@given(st.integers(1, 32_768), st.integers(1, 32_768))
def test_patch_grid_keeps_its_promises(width: int, height: int) -> None:
    rows, columns = patch_grid(width, height, DYNAMIC)
    assert rows % 2 == columns % 2 == 0
    assert DYNAMIC.min_patches <= rows * columns <= DYNAMIC.max_patches
    assert image_tokens(width, height, DYNAMIC) == rows * columns // 4
    # Sides of a few patches are rounded too coarsely to say more.
    if min(width, height) >= 128 and max(width, height) <= 4 * min(width, height):
        assert 0.8 < (columns / rows) / (width / height) < 1.25


@pytest.mark.parametrize(("width", "height"), [(1, 32_768), (32_768, 1)])
def test_strips_thinner_than_the_budget_still_get_a_grid(width: int, height: int) -> None:
    vision = replace(DYNAMIC, min_patches=4, max_patches=64)
    assert patch_grid(width, height, vision) == ((32, 2) if width == 1 else (2, 32))


def test_screenshots_cost_about_a_token_for_32_by_32_pixels() -> None:
    processor = ImageProcessor(DYNAMIC)
    assert image_grids(1920, 1080, processor.vision) == ((68, 120),)
    assert image_tokens(1920, 1080, processor.vision) == 2040
    assert image_tokens(1280, 720, processor.vision) == 46 // 2 * 80 // 2


def test_whole_image_at_its_own_size_is_only_normalised() -> None:
    image = noise(96, 64)
    vision = replace(DYNAMIC, min_patches=4, max_patches=64)
    result = ImageProcessor(vision)(image)
    assert (result.grids, result.tokens, result.size) == (((4, 6),), 6, (96, 64))
    assert np.allclose(unpacked(result.patches, (4, 6), 16), normalised(np.asarray(image), vision), atol=1e-6)


def test_resized_whole_image_keeps_the_overshoot() -> None:
    image = Image.new("RGB", (40, 40))
    image.paste((255, 255, 255), (20, 0, 40, 40))
    vision = replace(DYNAMIC, min_patches=4, max_patches=64, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    result = ImageProcessor(vision)(image)
    assert result.grids == ((4, 4),)
    assert result.patches.max() > 1.01
    assert result.patches.min() < -0.01
    planes = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
    expected = torch.nn.functional.interpolate(planes, (64, 64), mode="bicubic", antialias=True) / 255
    assert np.allclose(unpacked(result.patches, (4, 4), 16), expected[0].permute(1, 2, 0).numpy(), atol=1e-6)


# ---- either way --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vision", [TILES, DYNAMIC], ids=lambda vision: vision.mode)
@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (3, 700), (640, 480)])
def test_cost_and_patches_agree_whatever_the_shape(vision: VisionConfig, size: tuple[int, int]) -> None:
    result = ImageProcessor(vision)(noise(*size))
    assert result.tokens == image_tokens(*size, vision) == result.patches.shape[0] // 4
    assert result.patches.shape == (sum(rows * columns for rows, columns in result.grids), 768)
    assert torch.isfinite(result.patches).all()


@pytest.mark.parametrize("vision", [TILES, DYNAMIC], ids=lambda vision: vision.mode)
def test_images_without_pixels_are_refused(vision: VisionConfig) -> None:
    for size in ((0, 5), (5, 0), (-1, 4)):
        with pytest.raises(ImageError, match="no pixels"):
            image_tokens(*size, vision)


def test_other_modes_are_refused_rather_than_misread() -> None:
    with pytest.raises(ImageError, match="mode RGBA; RGB is needed"):
        ImageProcessor(TILES)(Image.new("RGBA", (4, 4)))


def test_budget_below_one_token_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="max_patches is 3"):
        patch_grid(10, 10, replace(DYNAMIC, max_patches=3))
