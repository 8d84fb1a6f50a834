"""Screenshots inside the engine: prepared off the loop, encoded once in batches, freed after the append."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import torch
from torch import Tensor

from holotron.engine.errors import EngineError
from holotron.model.config import ModelConfig
from holotron.model.grids import Grid
from holotron.model.model import Model
from holotron.model.tiling import ProcessedImage


@dataclass(frozen=True)
class PreparedImage:
    """An image ready to be encoded: its patches, its parts' fingerprints, and how to make it again."""

    image: ProcessedImage
    keys: tuple[bytes, ...]
    again: Callable[[], ProcessedImage] = field(repr=False)

    @property
    def key(self) -> bytes:
        return blake2b(b"".join(self.keys), digest_size=16).digest()


def prepare_image(make: Callable[[], ProcessedImage]) -> PreparedImage:
    """Run in a worker: decoding, resizing and fingerprinting take no time from the loop."""
    image = make()
    keys = tuple(
        blake2b(part, digest_size=16, person=f"{grid[0]}x{grid[1]}".encode()).digest()
        for part, grid in zip(_hashed(image), image.grids, strict=True)
    )
    return PreparedImage(image, keys, make)


def _hashed(image: ProcessedImage) -> Sequence[bytes | memoryview]:
    """What tells each part of an image from others: its patches, or the pixels of the whole image if those are less."""
    width, height = image.size
    if image.source is not None and len(image.grids) == 1 and 3 * width * height < image.patches.nbytes:
        return [f"{width}x{height} ".encode() + image.source.tobytes()]
    parts = image.patches.split([rows * columns for rows, columns in image.grids])
    return [part.contiguous().numpy().data for part in parts]


@dataclass(eq=False)
class ImageSpan:
    """An image's place among a session's tokens. Its patches go once it is computed; `again` brings them back."""

    start: int
    tokens: int
    key: bytes
    again: Callable[[], ProcessedImage] = field(repr=False)
    prepared: PreparedImage | None = field(default=None, repr=False)
    embeddings: Tensor | None = field(default=None, repr=False)

    @property
    def end(self) -> int:
        return self.start + self.tokens

    def copy(self) -> ImageSpan:
        return ImageSpan(self.start, self.tokens, self.key, self.again, self.prepared, self.embeddings)


def check_places(config: ModelConfig, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]]) -> None:
    """Whether each image, given with its offset, has exactly its places among the tokens."""
    if config.vision is None:
        if images:
            raise EngineError(f"{config.name} has no vision tower; load a vision-language model to give it images")
        return
    token = config.vision.image_token_id
    places, given = token_ids.count(token), sum(prepared.image.tokens for _, prepared in images)
    if places != given:
        raise EngineError(f"the tokens have {places} places for image tokens ({token}), but the images take {given}")
    end = 0
    for offset, prepared in images:
        wanted = prepared.image.tokens
        found = token_ids[offset : offset + wanted].count(token) if offset >= end else 0
        if found != wanted:
            raise EngineError(f"an image of {wanted} tokens finds {found} free places at offset {offset}")
        end = offset + wanted


class ImageEncoder:
    """Encodes the parts of many images at once; a part that was seen lately is not encoded again.

    Consecutive screenshots share most of their tiles, which is why the cache is keyed by part and not by image.
    """

    def __init__(self, model: Model, cache_bytes: int) -> None:
        self._model = model
        self._cache: OrderedDict[bytes, Tensor] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._held = 0
        self.encoded_parts = 0
        self.reused_parts = 0

    @torch.no_grad()
    def encode(self, spans: Sequence[ImageSpan]) -> None:
        """Give each span its embeddings."""
        wanted: dict[bytes, tuple[Tensor, Grid]] = {}
        found: dict[bytes, Tensor] = {}
        for span in spans:
            span.prepared = span.prepared or prepare_image(span.again)
            image = span.prepared.image
            parts = image.patches.split([rows * columns for rows, columns in image.grids])
            for key, part, grid in zip(span.prepared.keys, parts, image.grids, strict=True):
                if key in self._cache:
                    self._cache.move_to_end(key)
                    found[key] = self._cache[key]
                    self.reused_parts += 1
                elif key in wanted:
                    self.reused_parts += 1
                else:
                    wanted[key] = (part, grid)
        if wanted:
            parts = [part for part, _ in wanted.values()]
            # Each part goes to its place on the device, and is not copied on the host before.
            patches = parts[0].new_empty(sum(map(len, parts)), parts[0].shape[1], device=self._model.device)
            for place, part in zip(patches.split([len(part) for part in parts]), parts, strict=True):
                place.copy_(part, non_blocking=True)
            tokens = self._model.encode_patches(patches, [grid for _, grid in wanted.values()])
            self.encoded_parts += len(wanted)
            for key, part in zip(wanted, tokens, strict=True):
                found[key] = part
                self._remember(key, part)
        for span in spans:
            assert span.prepared is not None
            span.embeddings = torch.cat([found[key] for key in span.prepared.keys])
            span.prepared = None

    def clear(self) -> None:
        """After the weights changed nothing that was encoded before is valid."""
        self._cache.clear()
        self._held = 0

    def _remember(self, key: bytes, tokens: Tensor) -> None:
        if tokens.nbytes > self._cache_bytes:
            return
        self._cache[key] = tokens.clone()  # not a view that would keep the whole batch alive
        self._held += tokens.nbytes
        while self._held > self._cache_bytes:
            _, oldest = self._cache.popitem(last=False)
            self._held -= oldest.nbytes
