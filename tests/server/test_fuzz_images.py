"""Pictures that are none, lie about themselves or are merely strange."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

import httpx
import pytest
from PIL import Image

from .hostile import CHAT, refused, says, send

pytestmark = pytest.mark.usefixtures("unharmed")


def png(width: int, height: int, pixels: bytes = b"\0") -> bytes:
    """A PNG whose header says what it likes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def picture(form: str = "PNG", size: tuple[int, int] = (64, 48), mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, form, **options)
    return buffer.getvalue()


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def look(http: httpx.Client, address: str) -> httpx.Response:
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": address}}]
    return send(http, CHAT, says(parts))


BAD_IMAGES = {
    "nothing": "",
    "no URL": "hello",
    "no comma": "data:image/png;base64",
    "no base64": "data:image/png,abc",
    "broken base64": "data:image/png;base64,@@@@",
    "cut base64": url(picture())[:-3],
    "surrogate in base64": "data:image/png;base64,\u00e9",
    "empty": url(b""),
    "text": url(b"hello"),
    "SVG": url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
    "cut header": url(picture()[:20]),
    "cut pixels": url(picture(size=(200, 200))[:-40]),
    "bomb": url(png(60_000, 60_000)),
    "huge sides": url(png(2**31 - 1, 2**31 - 1)),
    "no width": url(png(0, 10)),
    "no height": url(png(10, 0)),
    "1×100000": url(png(1, 100_000)),
    "no pixels": url(png(100, 100)),
    "file": "file:///etc/passwd",
    "http": "http://127.0.0.1/a.png",
    "javascript": "javascript:alert(1)",
    "long": "http://example.com/" + "a" * 1_000_000,
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_a_bad_image_is_named(http, name):
    error = refused(look(http, BAD_IMAGES[name]), "messages.0.content.1.image_url.url")
    assert error["code"] == "invalid_image"


def test_strange_images_are_looked_at(http):
    frames = [Image.new("RGB", (40, 40), color) for color in ("red", "blue")]
    moving = io.BytesIO()
    frames[0].save(moving, "GIF", save_all=True, append_images=frames[1:])
    for data in (
        moving.getvalue(),
        picture("JPEG", mode="CMYK"),
        picture("JPEG", mode="L"),
        picture("PNG", mode="I;16"),
        picture("PNG", mode="LA"),
        picture("WEBP"),
        picture("PNG", size=(1, 1)),
        picture("PNG", size=(3000, 20)),
    ):
        assert look(http, url(data)).status_code == 200
    assert look(http, url(picture("JPEG"), "text/plain")).status_code == 200  # the file itself tells what it is
