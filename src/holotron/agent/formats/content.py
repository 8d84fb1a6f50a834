"""The part of a small screen that shows something, at the size that was taught, and points on it.

What a small policy was taught on has no margins and one size. A widget in the middle of a larger canvas, with empty
space below it or drawn at another zoom is cut out and scaled before it is shown, and its points are led back: what
looks alike is answered alike, wherever it stands. A part of another shape is something else, and is not touched.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from PIL import Image, ImageChops

from holotron.env.placement import Placement, Size

if TYPE_CHECKING:  # actions need pydantic, which training does without
    from holotron.actions.action import Action

LARGEST = 640  # pixels of the longer side: larger screens are pages, which are shown as they are
SHAPE = (160, 210)  # of the screens taught: ground below what they show belongs to them
NEAR = 6  # pixels by which a part may be taller or lower than that
ZOOMS = (0.45, 1.5)  # at which a part of that shape is shown as they were; a larger one is another kind of screen


@dataclass(frozen=True)
class Content:
    """Where the shown part lies. part: the screen placed so that only the part is left."""

    whole: Size
    part: Placement

    def from_screen(self, action: Action) -> Action:
        return self.part.move(action, self.whole)

    def to_screen(self, action: Action) -> Action:
        part = self.part
        back = Placement(self.whole, round(-part.left / part.zoom), round(-part.top / part.zoom), 1 / part.zoom)
        return back.move(action, part.size)


def find_content(image: bytes | None) -> Content | None:
    """None where the screen is shown as it is."""
    if image is None:
        return None
    with Image.open(io.BytesIO(image)) as opened:  # the size alone is read
        if max(opened.size) > LARGEST or opened.size == SHAPE:
            return None
    return _content_of(image)


@lru_cache(maxsize=64)  # a step asks for what is sent and for where its answer points
def _content_of(image: bytes) -> Content | None:
    with Image.open(io.BytesIO(image)) as opened:
        picture = opened.convert("RGB")
    width, height = picture.size
    boxes = [_box(picture, (x, y)) for x in (0, width - 1) for y in (0, height - 1)]
    left, top, right, bottom = min(boxes, key=lambda box: (box[2] - box[0]) * (box[3] - box[1]))
    bottom = min(height, max(bottom, top + round((right - left) * SHAPE[1] / SHAPE[0])))
    zoom = SHAPE[0] / (right - left)
    if not ZOOMS[0] <= zoom <= ZOOMS[1] or abs((bottom - top) * zoom - SHAPE[1]) >= NEAR:
        return None
    return Content(picture.size, Placement(SHAPE, round(-left * zoom), round(-top * zoom), zoom))


def _box(picture: Image.Image, corner: tuple[int, int]) -> tuple[int, int, int, int]:
    """The smallest box around all that has another colour than a corner; the whole picture if nothing has."""
    x, y = corner
    ground = picture.crop((x, y, x + 1, y + 1)).resize(picture.size)
    return ImageChops.difference(picture, ground).getbbox() or (0, 0, *picture.size)
