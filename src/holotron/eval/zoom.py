"""The second look of a two-stage answer: the part of a screenshot around the first one, enlarged to its size."""

from __future__ import annotations

import io

from PIL import Image

from holotron.eval.targets import Point

Crop = tuple[int, int, int, int]  # left, top, right, bottom in pixels


def crop_around(point: Point, size: tuple[int, int], share: float) -> Crop:
    """The part that is so much of each side, with the point in its middle or as near to it as the edges let."""
    sides = [max(1, round(share * side)) for side in size]
    starts = [
        max(0, min(round(at * side - part / 2), side - part)) for at, side, part in zip(point, size, sides, strict=True)
    ]
    return starts[0], starts[1], starts[0] + sides[0], starts[1] + sides[1]


def enlarged(png: bytes, crop: Crop) -> bytes:
    """That part as a PNG of the whole picture's size."""
    with Image.open(io.BytesIO(png)) as image:
        whole = image.convert("RGB")
    buffer = io.BytesIO()
    whole.crop(crop).resize(whole.size, Image.Resampling.LANCZOS).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def on_whole(point: Point, crop: Crop, size: tuple[int, int]) -> Point:
    """A point of the part, as shares of its sides, on the whole picture."""
    left, top, right, bottom = crop
    return (left + point[0] * (right - left)) / size[0], (top + point[1] * (bottom - top)) / size[1]
