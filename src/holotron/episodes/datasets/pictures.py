"""The images of a data set: found below its folder and nowhere else, read whole, and kept as PNG."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from threading import Lock
from urllib.parse import unquote

from PIL import Image

from holotron.episodes.datasets.records import BadRecord
from holotron.episodes.datasets.tables import TableImages, named_in_table
from holotron.episodes.images import PNG_SIGNATURE
from holotron.model.image import plain_rgb

MOST_PIXELS = 64_000_000
FOLDERS = ("", "images", "screenspotv2_image", "screenspot_imgs")  # below the one that is given
KEPT = 8  # several records in a row are often about one picture
_DATA_URL = re.compile(r"data:image/[a-zA-Z0-9+.-]+;base64,")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


@dataclass(frozen=True)
class SourcePicture:
    """A screenshot as PNG, its size, and the name under which a store keeps it."""

    png: bytes
    size: tuple[int, int]

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.png).hexdigest()


class SourcePictures:
    """Reads images by what records call them. BadRecord where there is none, or none that may be read."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Path, str], SourcePicture] = OrderedDict()
        self._lock = Lock()
        self._tables = TableImages()

    def size(self, root: Path, name: str) -> tuple[int, int]:
        """The image's size, from its head alone."""
        with _opened(self._source(root, name), name) as image:
            return image.size

    def read(self, root: Path, name: str) -> SourcePicture:
        key = root, name
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        picture = _decoded(self._source(root, name), name)
        with self._lock:
            self._kept[key] = picture
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return picture

    def _source(self, root: Path, name: str) -> Path | bytes:
        if (inside := named_in_table(name)) is not None:
            return self._tables.read(find_image(root, inside[0]), *inside[1:])
        start = _DATA_URL.match(name)
        if start is None:
            return find_image(root, name)
        try:
            return base64.b64decode(name[start.end() :], validate=True)
        except binascii.Error as error:
            raise BadRecord("image damaged", f"the data URL of an image is damaged: {error}") from None


def find_image(root: Path, name: str) -> Path:
    """The file that a record names, in the folder of images or one of FOLDERS; nothing outside is ever opened."""
    plain = unquote(name.removeprefix("file://")) if name.startswith("file://") else name
    if _URL.match(plain):
        raise BadRecord("image not here", f"{plain[:120]!r} is an address; images are files, nothing is fetched")
    base = root.resolve()
    if "\0" in plain or ".." in PurePosixPath(plain.replace("\\", "/")).parts:
        raise BadRecord("image outside", f"the image {plain[:120]!r} is not below {root}")
    for folder in FOLDERS:
        path = root / folder / plain.replace("\\", "/")
        try:
            found = path.resolve()
            if not found.is_relative_to(base):
                raise BadRecord("image outside", f"the image {plain[:120]!r} is not below {root}")
            if found.is_file():
                return found
        except (OSError, UnicodeError) as error:  # a name that is too long or no text, a loop of links
            raise BadRecord("image missing", f"{plain[:120]!r} is no name of a file: {error}") from None
    raise BadRecord("image missing", f"there is no image {plain[:120]!r} below {root}")


def _opened(source: Path | bytes, name: str) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadRecord("image damaged", f"{name[:120]!r} is no image: {error}") from None
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise BadRecord("image damaged", f"{name[:120]!r} has {image.width}×{image.height} pixels, which is too many")
    return image


def _decoded(source: Path | bytes, name: str) -> SourcePicture:
    data = source if isinstance(source, bytes) else source.read_bytes()
    with _opened(data, name) as image:
        try:
            image.load()  # all of it: a file that was cut short is found out here
            if data.startswith(PNG_SIGNATURE) and image.mode in ("RGB", "L", "P"):
                return SourcePicture(data, image.size)
            buffer = io.BytesIO()
            plain_rgb(image).save(buffer, "PNG", compress_level=3)
        except (OSError, ValueError, SyntaxError) as error:
            raise BadRecord("image damaged", f"{name[:120]!r} cannot be read to its end: {error}") from None
        return SourcePicture(buffer.getvalue(), image.size)
