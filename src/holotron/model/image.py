"""Images as they arrive: any common file or Pillow mode in, one plain RGB image out."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

# Importing the plugins registers them, so that no thread finds Pillow's registry half filled.
from PIL import (
    BmpImagePlugin,  # noqa: F401
    GifImagePlugin,  # noqa: F401
    Image,
    ImageFile,
    ImageOps,
    JpegImagePlugin,  # noqa: F401
    PngImagePlugin,  # noqa: F401
    TiffImagePlugin,  # noqa: F401
    WebPImagePlugin,  # noqa: F401
)

from holotron.model.errors import ImageError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MAX_PIXELS = 64_000_000
MAX_SIDE = 32_768
PNG = b"\x89PNG\r\n\x1a\n"
PNG_KEPT = (b"IHDR", b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"IEND")
MAX_CHUNKS = 50_000

ImageSource = bytes | bytearray | memoryview | str | os.PathLike[str] | Image.Image


class DecodedFile(bytes):
    """An image file that brings its pixels along, as load_image sees them, in 8 bits [H, W, 3], and their fingerprint.

    Another process decoded it, so that this one need not.
    """

    pixels: NDArray[np.uint8]
    fingerprint: bytes

    def __new__(cls, data: bytes, pixels: NDArray[np.uint8] | None = None, fingerprint: bytes = b"") -> Self:
        file = super().__new__(cls, data)
        file.pixels = np.array(load_image(data)) if pixels is None else pixels
        file.fingerprint = fingerprint or fingerprint_of(file.pixels)
        return file

    def __reduce__(self) -> tuple[type[Self], tuple[bytes, NDArray[np.uint8], bytes]]:
        return type(self), (bytes(self), self.pixels, self.fingerprint)


def fingerprint_of(pixels: NDArray[np.uint8]) -> bytes:
    """What tells an image from others: of its size and its pixels."""
    return blake2b(str(pixels.shape).encode() + pixels.tobytes(), digest_size=16).digest()


def load_image(source: ImageSource, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The image in RGB, upright, on white where it was transparent; ImageError says what is wrong with it.

    A str is a path. Of an animation the first frame is taken. The header's size is checked before anything is decoded.
    16-bit grey is scaled to 8 bits; 32-bit integers and floats, which carry no range of their own, by their content.
    """
    name = _name(source)
    with _image_errors(name):
        if isinstance(source, Image.Image):
            return _plain(source, name, max_pixels)
        with _stream(source) as stream:
            return _plain(_identify(stream, name), name, max_pixels)


def image_size(data: bytes, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Width and height of the upright image, from its header alone; ImageError where load_image would refuse them."""
    name = _name(data)
    with _image_errors(name):
        image = _identify(io.BytesIO(_without_pixels(data)), name)
        _check_size(image, name, max_pixels)
        # Not the PNG plugin's own method, which decodes the image to look behind it.
        exif = Image.Image.getexif(image)
        turned = exif.get(0x0112) in (5, 6, 7, 8)  # orientations that swap the sides
        return (image.height, image.width) if turned else (image.width, image.height)


def _without_pixels(data: bytes) -> bytes:
    """A PNG of only its header and what can tell how it is turned; any other file as it is."""
    if not data.startswith(PNG):
        return data
    kept, start = [data[: len(PNG)]], len(PNG)
    for _ in range(MAX_CHUNKS):
        length, kind = int.from_bytes(data[start : start + 4], "big"), data[start + 4 : start + 8]
        end = start + length + 12
        if kind in PNG_KEPT:
            kept.append(data[start:end])
        start = end
        if start >= len(data):
            return b"".join(kept)
    raise ImageError(f"{_name(data)} has more than {MAX_CHUNKS:,} chunks; save it anew")


@contextmanager
def _image_errors(name: str) -> Iterator[None]:
    """Pillow's decoders fail with nearly every type there is: all of them leave here as ImageError."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"{name} cannot be read: {type(error).__name__}: {error}") from error


def _name(source: ImageSource) -> str:
    """What messages call the image."""
    match source:
        case Image.Image():
            return f"the {source.mode} image of {source.width}×{source.height}"
        case bytes() | bytearray() | memoryview():
            return f"the image of {len(source)} bytes"
        case str() | os.PathLike():
            path = os.fspath(source)
            return f"the image {path if len(path) <= 200 else path[:200] + '…'}"
    raise TypeError(f"an image is given as bytes, a path or a Pillow image, not as {type(source).__name__}")


def _stream(source: bytes | bytearray | memoryview | str | os.PathLike[str]) -> AbstractContextManager[IO[bytes]]:
    if isinstance(source, bytes | bytearray | memoryview):
        return io.BytesIO(source)
    return open(source, "rb")


def _identify(stream: IO[bytes], name: str) -> ImageFile.ImageFile:
    """The image with only its header read.

    The plugins are asked directly because Image.open warns, or refuses, by Pillow's global pixel limit before the
    caller's own can be applied, and a warning cannot be silenced for one thread alone.
    """
    stream.seek(0)
    prefix = stream.read(16)
    if not prefix:
        raise ImageError(f"{name} is empty; an image file was expected")
    for image_format in FORMATS:
        factory, accept = Image.OPEN[image_format]
        if accept is not None and accept(prefix) is True:
            stream.seek(0)
            return factory(stream, "")
    raise ImageError(f"{name} is not in a known image format; known are {', '.join(FORMATS)}")


def _check_size(image: Image.Image, name: str, max_pixels: int) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError(f"{name} has no pixels: its size is {width}×{height}")
    if width > MAX_SIDE or height > MAX_SIDE or width * height > max_pixels:
        raise ImageError(
            f"{name} claims {width}×{height} pixels; at most {max_pixels:,} in all and {MAX_SIDE:,} on a side are "
            "taken: scale it down first"
        )


def _plain(image: Image.Image, name: str, max_pixels: int) -> Image.Image:
    _check_size(image, name, max_pixels)
    image.load()
    return plain_rgb(ImageOps.exif_transpose(image))


def plain_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode as RGB: deep values scaled, not clipped, and what shines through on white."""
    if image.mode.startswith(("I", "F")):
        return _eight_bit(image).convert("RGB")
    if image.has_transparency_data:
        # Pillow knows no direct way from premultiplied grey.
        image = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, image).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bit(image: Image.Image) -> Image.Image:
    """Deep grey as 8-bit grey, where Pillow's own conversion would clip everything above 255 to white."""
    values = np.asarray(image)
    if image.mode.startswith("I;16"):
        grey = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    else:
        grey = _by_content(values.astype(np.float64), whole=image.mode == "I")
    key = image.info.get("transparency")
    if isinstance(key, int):
        grey[values == key] = 255
    return Image.fromarray(grey)


def _by_content(values: np.ndarray, whole: bool) -> np.ndarray:
    """Values of unknown range as 0..255: of the usual ranges the narrowest that holds them all, else their own."""
    finite = np.isfinite(values)
    low, high = (float(values[finite].min()), float(values[finite].max())) if finite.any() else (0.0, 0.0)
    usual = (255.0, 65535.0) if whole else (1.0, 255.0, 65535.0)
    top = next((top for top in usual if high <= top), None) if low >= 0 else None
    base, span = (0.0, top) if top is not None else (low, high - low or 1.0)
    values = np.nan_to_num(values, nan=base, posinf=high, neginf=low)
    return np.rint((values - base) / span * 255).astype(np.uint8)
