"""The space actions point in: whole numbers from 0 to 1000 on each axis, whatever the size of the screen.

Pixel p covers [p, p+1) and its centre is p + 0.5; the value v stands at v/1000 of the side. A value thus names the
pixel it falls in, and a pixel is named by the value nearest to its centre, the lower of two equally near. On sides up
to 1001 pixels every pixel has a value that leads back to it. Beyond that there are more pixels than values, and the
way there and back may miss by up to side/2000 + 0.5 pixels: 1 on a side of 1920, 2 on one of 3840.
"""

from __future__ import annotations

SCALE = 1000


def to_pixels(x: int, y: int, width: int, height: int) -> tuple[int, int]:
    """The pixel that an action's point falls in; 1000 is the last pixel, so the result is always inside the image."""
    _check_size(width, height)
    _check("x", x, SCALE)
    _check("y", y, SCALE)
    return _to_pixel(x, width), _to_pixel(y, height)


def from_pixels(x: int, y: int, width: int, height: int) -> tuple[int, int]:
    """The point by which an action names a pixel."""
    _check_size(width, height)
    _check("x", x, width - 1)
    _check("y", y, height - 1)
    return _from_pixel(x, width), _from_pixel(y, height)


def _to_pixel(value: int, side: int) -> int:
    return min(value * side // SCALE, side - 1)


def _from_pixel(pixel: int, side: int) -> int:
    # The centre in values is (2p+1)·1000/(2·side). Rounding a half down keeps the result inside the half-open pixel
    # even where a pixel is exactly one value wide; ceil(c - 1/2) does that, and -(-a // b) is ceil in integers.
    return -((side - (2 * pixel + 1) * SCALE) // (2 * side))


def _check(axis: str, value: int, last: int) -> None:
    if not _is_whole(value) or not 0 <= value <= last:
        raise ValueError(f"{axis} is {value!r}; it must be a whole number from 0 to {last}")


def _check_size(width: int, height: int) -> None:
    for name, side in (("width", width), ("height", height)):
        if not _is_whole(side) or side < 1:
            raise ValueError(f"{name} is {side!r}; it must be a whole number of at least 1")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
