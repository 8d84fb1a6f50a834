"""The size in which a model sees an image: whole patches, at least so many pixels and at most so many."""

from __future__ import annotations

import math
from dataclasses import dataclass

LONGEST = 200  # times the shorter side


@dataclass(frozen=True)
class ImageRule:
    """Qwen-VL's `smart_resize`: sides are multiples of `factor`, the area is between the bounds, the shape stays."""

    factor: int
    min_pixels: int
    max_pixels: int

    def resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) of an image of this (width, height) as the model sees it."""
        width, height = size
        if max(size) > LONGEST * min(size):
            raise ValueError(f"an image of {width}x{height} is more than {LONGEST} times as long as wide")
        factor = self.factor
        # Python's rounding, half to even, is part of the rule.
        across, down = (max(factor, round(side / factor) * factor) for side in (width, height))
        if across * down > self.max_pixels:
            shrink = math.sqrt(width * height / self.max_pixels)
            across, down = (max(factor, math.floor(side / shrink / factor) * factor) for side in size)
        elif across * down < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (width * height))
            across, down = (math.ceil(side * grow / factor) * factor for side in size)
        return across, down
