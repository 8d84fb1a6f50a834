"""The coordinate space of actions: what goes in comes out, wherever that is possible at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotron.actions.coordinates import Space, from_pixels

SIDES = st.integers(1, 40_000)


def to_pixels(x: int, y: int, width: int, height: int) -> tuple[int, int]:
    return Space("pixels", width, height).from_relative(x, y)


def test_every_pixel_leads_back_to_itself_on_sides_up_to_1001() -> None:
    for side in range(1, 1002):
        for pixel in range(side):
            x, _ = from_pixels(pixel, 0, side, 1)
            assert to_pixels(x, 0, side, 1) == (pixel, 0), (pixel, side)


@pytest.mark.parametrize("side", [1002, 1280, 1366, 1920, 2560, 3840, 7680])
def test_larger_sides_miss_by_no_more_than_stated(side: int) -> None:
    misses = [abs(to_pixels(from_pixels(pixel, 0, side, 1)[0], 0, side, 1)[0] - pixel) for pixel in range(side)]
    assert 0 < max(misses) <= side / 2000 + 0.5


@given(st.integers(0, 1000), st.integers(0, 1000), SIDES, SIDES)
def test_result_is_always_inside_the_image(x: int, y: int, width: int, height: int) -> None:
    pixel_x, pixel_y = to_pixels(x, y, width, height)
    assert 0 <= pixel_x < width
    assert 0 <= pixel_y < height


@given(SIDES, st.data())
def test_pixel_is_named_by_the_value_nearest_its_centre(side: int, data: st.DataObject) -> None:
    pixel = data.draw(st.integers(0, side - 1))
    value, _ = from_pixels(pixel, 0, side, 1)
    assert 0 <= value <= 1000
    # |value/1000·side - (pixel + 1/2)| is at most half a value, in integers.
    assert abs(2 * value * side - (2 * pixel + 1) * 1000) <= side


@given(st.integers(0, 1000), st.integers(1001, 40_000))
def test_every_value_leads_back_to_itself_on_large_sides(value: int, side: int) -> None:
    pixel, _ = to_pixels(value, 0, side, 1)
    assert abs(from_pixels(pixel, 0, side, 1)[0] - value) <= 1


@given(SIDES)
def test_both_maps_keep_the_order(side: int) -> None:
    pixels = [to_pixels(value, 0, side, 1)[0] for value in range(1001)]
    assert pixels == sorted(pixels)
    assert (pixels[0], pixels[-1]) == (0, side - 1)


def test_axes_are_independent() -> None:
    assert to_pixels(500, 1000, 1920, 1080) == (960, 1079)
    assert from_pixels(960, 1079, 1920, 1080) == (500, 1000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1001, 0, 10, 10), "x is 1001; it must be a whole number from 0 to 1000"),
        ((0, -1, 10, 10), "y is -1"),
        ((0.5, 0, 10, 10), "x is 0.5"),
        (("5", 0, 10, 10), "x is '5'"),
        ((True, 0, 10, 10), "x is True"),
        ((0, None, 10, 10), "y is None"),
        ((0, 0, 0, 10), "width is 0; it must be a whole number of at least 1"),
        ((0, 0, 10, 2.5), "height is 2.5"),
    ],
)
def test_bad_values_are_named(arguments: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_pixels(*arguments)


def test_pixels_outside_the_image_are_named() -> None:
    with pytest.raises(ValueError, match="x is 10; it must be a whole number from 0 to 9"):
        from_pixels(10, 0, 10, 10)
    with pytest.raises(ValueError, match="y is -1"):
        from_pixels(0, -1, 10, 10)
