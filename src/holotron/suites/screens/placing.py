"""A screen on a canvas: the picture, and everything that is known to be on it."""

from __future__ import annotations

import io
from dataclasses import replace

from PIL import Image

from holotron.env.placement import Placement
from holotron.suites.screens.labels import ScreenElement, Writing
from holotron.suites.screens.rendering import Shot

Box = tuple[float, float, float, float]


def placed(shot: Shot, placement: Placement) -> Shot:
    """The screen at its own zoom somewhere on a larger canvas."""
    assert placement.zoom == 1.0, "screens are drawn by the browser at their size"
    left, top = placement.left, placement.top

    def box(found: Box) -> Box:
        return found[0] + left, found[1] + top, found[2] + left, found[3] + top

    def element(found: ScreenElement) -> ScreenElement:
        return replace(found, box=box(found.box), spots=tuple((x + left, y + top) for x, y in found.spots))

    words = tuple((text, row + top, tuple(x + left for x in columns)) for text, row, columns in shot.writing.words)
    with Image.open(io.BytesIO(shot.png)) as image:
        canvas = placement.place(image.convert("RGB"))
    png = io.BytesIO()
    canvas.save(png, "PNG", compress_level=1)
    writing = Writing(words, tuple(box(each) for each in shot.writing.unread))
    return Shot(png.getvalue(), *placement.size, tuple(map(element, shot.elements)), shot.about, writing)
