"""Pages of any shape at a size that was taught: which size, and that points stay where they are."""

from __future__ import annotations

import io

import pytest
from PIL import Image, ImageDraw

from holotron.actions.action import Click
from holotron.agent.formats.taught_size import SHOWN, VIEWS, stretched, taught_size
from holotron.agent.policy_format import NANO, JsonFormat
from holotron.model.checkpoint.config_json import read_config
from holotron.model.grids import image_grids
from holotron.model.loading import find_checkpoint


def page(size: tuple[int, int], dot: tuple[float, float] = (0.5, 0.5)) -> bytes:
    """White, with a black square of a tenth of the height at a place in shares of the sides."""
    image = Image.new("RGB", size, (255, 255, 255))
    x, y, half = dot[0] * size[0], dot[1] * size[1], size[1] / 20
    ImageDraw.Draw(image).rectangle((x - half, y - half, x + half, y + half), fill=(0, 0, 0))
    written = io.BytesIO()
    image.save(written, "PNG", compress_level=1)
    return written.getvalue()


def test_the_bundled_policy_sees_the_views_taught_in_the_grids_named() -> None:
    vision = read_config(find_checkpoint("holotron-nano")).vision
    assert vision is not None
    grids = {image_grids(*size, vision) for size in VIEWS}
    assert grids == {image_grids(*size, vision) for size in SHOWN}
    assert {grid for (grid,) in grids} == {(height // 16, width // 16) for width, height in SHOWN}
    assert image_grids(1920, 1080, vision) not in grids, "as most screens are"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((1920, 1080), (800, 480)),
        ((1366, 768), (800, 480)),
        ((1650, 819), (800, 480)),
        ((1215, 822), (768, 512)),
        ((886, 831), (704, 544)),
        ((819, 1011), (704, 544)),
    ],
)
def test_a_page_of_another_shape_is_stretched_to_the_nearest(size: tuple[int, int], shown: tuple[int, int]) -> None:
    sent = NANO.shown(page(size, (0.25, 0.75)))
    assert sent is not None
    image = Image.open(io.BytesIO(sent)).convert("L")
    assert image.size == shown == taught_size(size)
    assert image.getpixel((shown[0] // 4, shown[1] * 3 // 4)) == 0
    assert image.getpixel((shown[0] * 3 // 4, shown[1] // 4)) == 255
    click = Click(x=250, y=750)
    assert NANO.to_screen(click, page(size)) == click
    assert NANO.from_screen(click, page(size)) == click


@pytest.mark.parametrize("size", [*VIEWS, *SHOWN, (300, 600), (799, 640), (1000, 599), (1600, 640), (800, 1200)])
def test_what_was_taught_or_is_no_page_is_shown_as_it_is(size: tuple[int, int]) -> None:
    shot = page(size)
    assert stretched(shot) == shot
    assert taught_size(size) == size


def test_only_small_policies_are_shown_stretched_pages() -> None:
    shot = page((1920, 1080))
    assert JsonFormat().shown(shot) == shot
