"""Painting over what a screenshot must not show."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw

MARGIN = 2
COLOUR = (32, 32, 32)


def paint_over(png: bytes, boxes: Sequence[Sequence[float]]) -> bytes:
    """The picture with these boxes (left, top, width, height) filled; the page itself is not touched."""
    if not boxes:
        return png
    image = Image.open(io.BytesIO(png)).convert("RGB")
    draw = ImageDraw.Draw(image)
    for left, top, width, height in boxes:
        if width > 0 and height > 0:
            draw.rectangle((left - MARGIN, top - MARGIN, left + width + MARGIN, top + height + MARGIN), fill=COLOUR)
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()
