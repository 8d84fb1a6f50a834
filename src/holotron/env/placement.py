"""A picture at some place of a larger canvas, and where its points are then."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

from holotron.actions.coordinates import SCALE

if TYPE_CHECKING:  # actions need pydantic, which training does without
    from holotron.actions.action import Action

Size = tuple[int, int]
Colour = tuple[int, int, int]
AXES = {"x": 0, "to_x": 0, "y": 1, "to_y": 1}  # where actions name points


@dataclass(frozen=True)
class Placement:
    """The picture scaled by `zoom`, its corner at (left, top) of a canvas of `size`, the rest in one colour.

    What lies outside the canvas is cut off: a negative left or top crops the picture.
    """

    size: Size
    left: int = 0
    top: int = 0
    zoom: float = 1.0
    colour: Colour = (255, 255, 255)

    def scaled(self, picture: Size) -> Size:
        """The size at which a picture is shown, in whole pixels."""
        return max(1, round(picture[0] * self.zoom)), max(1, round(picture[1] * self.zoom))

    def place(self, picture: Image.Image) -> Image.Image:
        """The canvas with an RGB picture on it."""
        canvas = Image.new("RGB", self.size, self.colour)
        scaled = self.scaled(picture.size)
        shown = picture if scaled == picture.size else picture.resize(scaled, Image.Resampling.BICUBIC)
        canvas.paste(shown, (self.left, self.top))
        return canvas

    def place_png(self, png: bytes) -> bytes:
        """The same of a picture in a file."""
        with Image.open(io.BytesIO(png)) as picture:
            canvas = self.place(picture.convert("RGB"))
        written = io.BytesIO()
        canvas.save(written, "PNG", compress_level=1)
        return written.getvalue()

    def moved(self, axis: int, value: int, picture: Size) -> int:
        """A coordinate (axis 0: x, 1: y) of a point on the picture, both in thousandths, on the canvas.

        The value v stands at v/1000 of a side. A half is rounded down, as where pixels are named.
        """
        side, corner = self.size[axis], (self.left, self.top)[axis]
        place = value * self.scaled(picture)[axis] + SCALE * corner  # in parts of the canvas's side
        return max(0, min(-((side - 2 * place) // (2 * side)), SCALE))

    def move(self, action: Action, picture: Size) -> Action:
        """An action on the picture as one on the canvas. A scroll of a share of the one is one of a share of the other.

        To a larger canvas it is rounded down, so that nothing is skipped, and back up again.
        """
        given = {name: value for name in AXES if (value := getattr(action, name, None)) is not None}
        changed = {name: self.moved(AXES[name], value, picture) for name, value in given.items()}
        if action.action == "scroll":
            axis = 1 if action.direction in ("up", "down") else 0
            part, whole = self.scaled(picture)[axis], self.size[axis]
            amount = action.amount * part // whole if part < whole else -(-action.amount * part // whole)
            changed["amount"] = max(1, min(amount, 1000))
        return action.model_copy(update=changed) if changed else action

    def back(self, x: float, y: float, picture: Size) -> tuple[int, int] | None:
        """The picture's pixel that shows at a pixel of the canvas; None beside the picture."""
        width, height = self.scaled(picture)
        across, down = (x + 0.5 - self.left) / width, (y + 0.5 - self.top) / height
        if not (0 <= across < 1 and 0 <= down < 1):
            return None
        return int(across * picture[0]), int(down * picture[1])
