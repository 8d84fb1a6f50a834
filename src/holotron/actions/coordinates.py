"""Where a point is: whole numbers from 0 to 1000 on each axis for screens of every size, or pixels of one image.

Pixel p covers [p, p+1) and its centre is p + 0.5; the value v stands at v/1000 of the side. A value thus names the
pixel it falls in, and a pixel is named by the value nearest to its centre, the lower of two equally near. On sides up
to 1001 pixels every pixel has a value that leads back to it. Beyond that there are more pixels than values, and the
way there and back may miss by up to side/2000 + 0.5 pixels: 1 on a side of 1920, 2 on one of 3840.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

SCALE = 1000
SpaceKind = Literal["relative", "pixels"]


@dataclass(frozen=True)
class Space:
    """Points as 0–1000 of each side ("relative") or as pixels of an image of this size ("pixels").

    The image is the one whose pixels are meant: the resized one if the model counts in its pixels, the declared display
    if that is what it was told. For relative points the size is only kept beside them.
    """

    kind: SpaceKind
    width: int
    height: int

    def __post_init__(self) -> None:
        if self.kind not in get_args(SpaceKind):
            raise ValueError(f"there is no space {self.kind!r}; choose one of {', '.join(get_args(SpaceKind))}")
        for name, side in (("width", self.width), ("height", self.height)):
            if not _is_whole(side) or side < 1:
                raise ValueError(f"{name} is {side!r}; it must be a whole number of at least 1")

    def to_relative(self, x: float, y: float) -> tuple[int, int]:
        """A point of this space as 0–1000, moved inside the image if it lies outside."""
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError(f"the point ({x}, {y}) is not a place")
        if self.kind == "relative":
            return _clamp(round(x), SCALE), _clamp(round(y), SCALE)
        pixel_x, pixel_y = _clamp(math.floor(x), self.width - 1), _clamp(math.floor(y), self.height - 1)
        return _from_pixel(pixel_x, self.width), _from_pixel(pixel_y, self.height)

    def from_relative(self, x: int, y: int) -> tuple[int, int]:
        """A point given as 0–1000 in this space.

        There and back is exact if relative. In pixels it may miss by half a pixel and half a unit: by 1 on sides of
        1001 pixels or more. 1000 is the last pixel, so the result is always inside the image.
        """
        if self.kind == "relative":
            return x, y
        _check(x, y, SCALE, SCALE)
        return min(x * self.width // SCALE, self.width - 1), min(y * self.height // SCALE, self.height - 1)


@dataclass(frozen=True)
class Probe(Space):
    """A space that only remembers which points it was asked about."""

    points: list[tuple[float, float]] = field(default_factory=list)

    def to_relative(self, x: float, y: float) -> tuple[int, int]:
        self.points.append((x, y))
        return 0, 0


def from_pixels(x: int, y: int, width: int, height: int) -> tuple[int, int]:
    """The point by which an action names a pixel, which must be inside the image."""
    space = Space("pixels", width, height)
    _check(x, y, width - 1, height - 1)
    return space.to_relative(x, y)


def _from_pixel(pixel: int, side: int) -> int:
    # The centre in values is (2p+1)·1000/(2·side). Rounding a half down keeps the result inside the half-open pixel
    # even where a pixel is exactly one value wide; ceil(c - 1/2) does that, and -(-a // b) is ceil in integers.
    return -((side - (2 * pixel + 1) * SCALE) // (2 * side))


def _check(x: int, y: int, last_x: int, last_y: int) -> None:
    for axis, value, last in (("x", x, last_x), ("y", y, last_y)):
        if not _is_whole(value) or not 0 <= value <= last:
            raise ValueError(f"{axis} is {value!r}; it must be a whole number from 0 to {last}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _clamp(value: int, last: int) -> int:
    return max(0, min(value, last))
