"""Images in requests: data URLs, and files from hosts that the operator allows."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

from pydantic import ConfigDict, TypeAdapter, ValidationError

from holotron.model.errors import ImageError
from holotron.model.image import image_size
from holotron.server.errors import blaming, field_error
from holotron.server.fetch import Fetcher
from holotron.server.schemas import ChatMessage, ImagePart
from holotron.server.settings import ServerSettings

# Beyond this, decoding base64 would hold up other requests, and is done by a thread; which lets others run after each
# of these pieces.
LARGE = 256 * 1024
PIECE = 2**20  # letters: a multiple of four
QUICK_BASE64 = TypeAdapter(bytes, config=ConfigDict(val_json_bytes="base64"))  # takes a quarter of the library's time


@dataclass(frozen=True)
class SentImage:
    """The file, the size of what is in it, and the field of the request it came in."""

    data: bytes
    size: tuple[int, int]
    field: str


class ImageReader:
    """Gets the images of a request, in order. Only headers are read here; the engine's workers decode."""

    def __init__(self, settings: ServerSettings, fetcher: Fetcher, decoders: Executor) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._decoders = decoders

    async def read(self, messages: Sequence[ChatMessage]) -> list[SentImage]:
        return await self.read_urls(list(_places(messages)), "messages")

    async def read_urls(self, places: Sequence[tuple[str, str]], within: str) -> list[SentImage]:
        """The images at URLs, each with its field of the request."""
        if len(places) > self._settings.max_images:
            problem = f"{len(places)} images are more than the {self._settings.max_images} a request may have"
            raise field_error(within, problem, "too_many_images")
        return list(await asyncio.gather(*(self._one(field, url) for field, url in places)))

    async def _one(self, field: str, url: str) -> SentImage:
        settings = self._settings
        with blaming(field, ImageError, ValueError, code="invalid_image"):
            if url[:5].lower() != "data:":
                data = await self._fetcher.fetch(url)
            elif len(url) < LARGE:
                data = _decode(url, settings.max_image_bytes)
            else:
                data = await asyncio.get_running_loop().run_in_executor(
                    self._decoders, _decode, url, settings.max_image_bytes
                )
            return SentImage(data, image_size(data, settings.max_image_pixels), field)


def _places(messages: Sequence[ChatMessage]) -> Iterator[tuple[str, str]]:
    for i, message in enumerate(messages):
        if isinstance(message.content, list):
            for j, part in enumerate(message.content):
                if isinstance(part, ImagePart):
                    yield f"messages.{i}.content.{j}.image_url.url", part.image_url.url


def _decode(url: str, most: int) -> bytes:
    """The bytes in a data URL."""
    head, comma, body = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise ValueError("a data URL of an image looks like data:image/png;base64,…")
    if "%" in body or "\n" in body:  # URLs may be escaped, and MIME breaks lines
        body = "".join(unquote(body).split())
    if len(body) > most * 4 / 3 + 4:
        raise ValueError(f"the image is larger than the {most:,} bytes that are taken")
    try:
        pieces = [body[start : start + PIECE] for start in range(0, len(body), PIECE)]
        data = b"".join(map(_decode_piece, pieces))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the data URL is not valid base64: {error}") from error
    if len(data) > most:
        raise ValueError(f"the image has {len(data):,} bytes; {most:,} are the most that are taken")
    return data


def _decode_piece(piece: str) -> bytes:
    """As the library decodes it. What may be no standard base64 is left to that, which tells what is wrong."""
    if len(piece) % 4 == 0 and "-" not in piece and "_" not in piece:
        with suppress(ValidationError):
            return QUICK_BASE64.validate_strings(piece)
    return base64.b64decode(piece, validate=True)
