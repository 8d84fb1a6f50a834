"""A picture at some place of a larger canvas, and where its points are then."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from holotron.actions.coordinates import SCALE

Size = tuple[int, int]
Colour = tuple[int, int, int]


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

    def moved(self, axis: int, value: int, picture: Size) -> int:
        """A coordinate (axis 0: x, 1: y) of a point on the picture, both in thousandths, on the canvas.

        The value v stands at v/1000 of a side. A half is rounded down, as where pixels are named.
        """
        side, corner = self.size[axis], (self.left, self.top)[axis]
        place = value * self.scaled(picture)[axis] + SCALE * corner  # in parts of the canvas's side
        return max(0, min(-((side - 2 * place) // (2 * side)), SCALE))

    def back(self, x: float, y: float, picture: Size) -> tuple[int, int] | None:
        """The picture's pixel that shows at a pixel of the canvas; None beside the picture."""
        width, height = self.scaled(picture)
        across, down = (x + 0.5 - self.left) / width, (y + 0.5 - self.top) / height
        if not (0 <= across < 1 and 0 <= down < 1):
            return None
        return int(across * picture[0]), int(down * picture[1])
