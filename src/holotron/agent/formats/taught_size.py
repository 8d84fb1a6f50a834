"""Pages of any shape at a size that was taught.

The vision tower gets a picture as a grid of patches, and all pages that small policies were taught on came in one of
three grids. In another one they point beside what they see, so a page of another shape is stretched to the nearest.
Points are thousandths of both sides: stretching leaves them where they are.
"""

from __future__ import annotations

import io

from PIL import Image

from holotron.env.placement import Size

VIEWS = ((800, 600), (960, 640), (1024, 768), (1152, 768), (1280, 720), (1280, 800))  # of pages taught
SHOWN = ((704, 544), (768, 512), (800, 480))  # what is seen of those: 16 pixels a patch, 1,536 patches at most
SMALLEST = (800, 600)  # of a page; smaller pictures and other shapes were not measured
SHAPES = (0.8, 2.3)  # width to height of a page that is stretched


def taught_size(size: Size) -> Size:
    """The size at which a screen is shown; its own where it was taught, or is no page."""
    (width, height), shape = size, size[0] / size[1]
    if size in VIEWS or width < SMALLEST[0] or height < SMALLEST[1] or not SHAPES[0] <= shape <= SHAPES[1]:
        return size
    return min(SHOWN, key=lambda shown: abs(shown[0] / shown[1] - shape))


def stretched(image: bytes) -> bytes:
    """A screenshot at the size that was taught."""
    with Image.open(io.BytesIO(image)) as picture:  # the size alone is read
        size = taught_size(picture.size)
        if size == picture.size:
            return image
        out = io.BytesIO()
        picture.convert("RGB").resize(size, Image.Resampling.BICUBIC).save(out, "PNG", compress_level=1)
    return out.getvalue()
