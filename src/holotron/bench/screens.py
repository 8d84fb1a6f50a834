"""Synthetic screenshots of a browser, as files: drawn, not photographed, and changing a little from step to step."""

from __future__ import annotations

import io
import random
from functools import cache

import torch
from PIL import Image, ImageDraw

from holotron.engine.images import PreparedImage, prepare_image
from holotron.model.config import VisionConfig
from holotron.model.image import load_image
from holotron.model.tiling import ImageProcessor, ProcessedImage

KINDS = 24


class Screens:
    """PNG files that sessions take turns with. `changed` is the share of the screen in which they differ."""

    def __init__(self, size: tuple[int, int], vision: VisionConfig, changed: float) -> None:
        self._processor = ImageProcessor(vision, on_device=torch.cuda.is_available())
        self._files = _files(size, changed)
        self._taken = 0

    def next(self) -> PreparedImage:
        """The next screenshot, decoded and prepared for the tower. Called from workers."""
        self._taken += 1
        file = self._files[self._taken % KINDS]

        def make() -> ProcessedImage:
            return self._processor(load_image(file))

        return prepare_image(make)


@cache
def _files(size: tuple[int, int], changed: float) -> list[bytes]:
    return [png(draw_screen(size, kind, changed)) for kind in range(KINDS)]


def draw_screen(size: tuple[int, int], kind: int, changed: float) -> Image.Image:
    """A page of buttons and words; all kinds share their upper part."""
    image = Image.new("RGB", size, (250, 250, 252))
    fixed = int(size[1] * (1 - changed))
    _paint(image, random.Random(0), 0, fixed)
    _paint(image, random.Random(kind + 1), fixed, size[1])
    return image


def _paint(image: Image.Image, draw: random.Random, top: int, bottom: int) -> None:
    pen = ImageDraw.Draw(image)
    width = image.size[0]
    for y in range(top, bottom - 20, 40):
        x = draw.randint(0, 40)
        while x < width - 60:
            w = draw.randint(40, 260)
            if draw.random() < 0.3:
                colour = (draw.randint(60, 230), draw.randint(60, 230), draw.randint(60, 230))
                pen.rectangle((x, y, x + w, y + 28), fill=colour)
            pen.text((x + 4, y + 6), "".join(draw.choices("abcdefghij klmnop", k=w // 7)), fill=(20, 20, 20))
            x += w + draw.randint(8, 60)


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
