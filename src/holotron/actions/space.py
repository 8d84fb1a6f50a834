"""Where a point is: the space in which whoever wrote an action counts, and the image that was looked at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from holotron.actions.coordinates import SCALE, from_pixels, to_pixels

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
            if not isinstance(side, int) or isinstance(side, bool) or side < 1:
                raise ValueError(f"{name} is {side!r}; it must be a whole number of at least 1")

    def to_relative(self, x: float, y: float) -> tuple[int, int]:
        """A point of this space as 0–1000, moved inside the image if it lies outside."""
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError(f"the point ({x}, {y}) is not a place")
        if self.kind == "relative":
            return _clamp(round(x), SCALE), _clamp(round(y), SCALE)
        pixel = _clamp(math.floor(x), self.width - 1), _clamp(math.floor(y), self.height - 1)
        return from_pixels(*pixel, self.width, self.height)

    def from_relative(self, x: int, y: int) -> tuple[int, int]:
        """A point given as 0–1000 in this space.

        There and back is exact if relative. In pixels it may miss by half a pixel and half a unit: by 1 on sides of
        1001 pixels or more.
        """
        return (x, y) if self.kind == "relative" else to_pixels(x, y, self.width, self.height)


def _clamp(value: int, last: int) -> int:
    return max(0, min(value, last))
