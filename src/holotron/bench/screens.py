"""Synthetic screenshots of a browser: drawn, not photographed, and changing a little from step to step."""

from __future__ import annotations

import random

from PIL import Image, ImageDraw

from holotron.engine.images import PreparedImage, prepare_image
from holotron.model.config import VisionConfig
from holotron.model.tiling import ImageProcessor, ProcessedImage


class Screens:
    """Screens for many sessions. `changed` is the share of the screen that differs from the session's last one."""

    def __init__(self, size: tuple[int, int], vision: VisionConfig, changed: float) -> None:
        self._size = size
        self._changed = changed
        self._processor = ImageProcessor(vision)
        self._counts: dict[int, int] = {}

    def next(self, session: int) -> PreparedImage:
        """The session's next screenshot, prepared for the tower. Called from workers."""
        count = self._counts[session] = self._counts.get(session, -1) + 1

        def make() -> ProcessedImage:
            return self._processor(self.draw(session, count))

        return prepare_image(make)

    def draw(self, session: int, count: int) -> Image.Image:
        height = self._size[1]
        image = Image.new("RGB", self._size, (250, 250, 252))
        fixed = int(height * (1 - self._changed))
        self._paint(image, random.Random(session), 0, fixed)
        self._paint(image, random.Random(f"{session}.{count}"), fixed, height)
        return image

    def _paint(self, image: Image.Image, draw: random.Random, top: int, bottom: int) -> None:
        pen = ImageDraw.Draw(image)
        width = image.size[0]
        for y in range(top, bottom - 20, 40):
            x = draw.randint(0, 40)
            while x < width - 60:
                w = draw.randint(40, 260)
                if draw.random() < 0.3:
                    colour = tuple(draw.randint(60, 230) for _ in range(3))
                    pen.rectangle((x, y, x + w, y + 28), fill=colour)
                pen.text((x + 4, y + 6), "".join(draw.choices("abcdefghij klmnop", k=w // 7)), fill=(20, 20, 20))
                x += w + draw.randint(8, 60)
