"""Screenshots inside the engine: prepared off the loop, encoded once in batches, freed after the append."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from holotron.engine.errors import EngineError
from holotron.engine.tower_graph import TowerGraphs
from holotron.model.config import ModelConfig
from holotron.model.grids import Grid
from holotron.model.image import DecodedFile, fingerprint_of, load_image
from holotron.model.model import Model
from holotron.model.tiling import ImageProcessor, ProcessedImage, patches_of_whole_images

ImageLike = ProcessedImage | Image.Image | bytes | Path

SMALL_BATCH = 4 * 2**20  # bytes of embeddings that may stay for the sake of one image among them


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
    return PreparedImage(image, _fingerprints(_hashed(image), image), make)


def prepare_decoded(file: DecodedFile, processor: ImageProcessor) -> PreparedImage:
    """The same of what another process has decoded: nothing of it takes long where the device makes the patches."""
    again = ImageFile(bytes(file), processor)  # without the pixels, which are only needed now
    if processor.leaves_pixels:
        image = processor.of_pixels(file.pixels)
        return PreparedImage(image, _fingerprints([file.fingerprint], image), again)
    image = processor(Image.fromarray(file.pixels))
    return PreparedImage(image, _fingerprints(_hashed(image), image), again)


def _fingerprints(parts: Sequence[bytes | memoryview], image: ProcessedImage) -> tuple[bytes, ...]:
    return tuple(
        blake2b(part, digest_size=16, person=f"{grid[0]}x{grid[1]}".encode()).digest()
        for part, grid in zip(parts, image.grids, strict=True)
    )


def _hashed(image: ProcessedImage) -> Sequence[bytes | memoryview]:
    """What tells each part of an image from others: its patches, or its pixels if those are less."""
    if image.pixels is not None and image.pixels.dim() == 4:
        return [tile.numpy().data for tile in image.pixels]
    if image.pixels is not None and (image.patches is None or image.pixels.nbytes < image.patches.nbytes):
        return [fingerprint_of(image.pixels.numpy())]
    return [part.contiguous().numpy().data for part in _parts(image)]


def _parts(image: ProcessedImage) -> Sequence[Tensor]:
    """The patches of each grid, or the pixels of the image or its tiles where patches are made on the device."""
    if image.patches is None:
        assert image.pixels is not None
        return list(image.pixels) if image.pixels.dim() == 4 else [image.pixels]
    return image.patches.split([rows * columns for rows, columns in image.grids])


@dataclass(frozen=True)
class ImageFile:
    """How an image is made: from the file, the pixels or the patches that it was given as."""

    source: ImageLike
    processor: ImageProcessor = field(repr=False)

    def __call__(self) -> ProcessedImage:
        return self.source if isinstance(self.source, ProcessedImage) else self.processor(load_image(self.source))

    def file(self) -> bytes:
        """A file that gives the same image."""
        if isinstance(self.source, bytes):
            return self.source
        if isinstance(self.source, ProcessedImage):
            raise EngineError("the image was given as patches; give its file or its pixels")
        file = BytesIO()
        load_image(self.source).save(file, "PNG", compress_level=1)
        return file.getvalue()


@dataclass(eq=False)
class ImageSpan:
    """An image's place among a session's tokens. Its patches go once it is computed; `again` brings them back.

    For models with M-RoPE: its grid of patches, and how far all images up to this one move what follows (shift).
    """

    start: int
    tokens: int
    key: bytes
    again: Callable[[], ProcessedImage] = field(repr=False)
    prepared: PreparedImage | None = field(default=None, repr=False)
    embeddings: Tensor | None = field(default=None, repr=False)
    grid: Grid | None = None
    shift: int = 0

    @property
    def end(self) -> int:
        return self.start + self.tokens

    def copy(self) -> ImageSpan:
        return replace(self)


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


def _keys(prepared: PreparedImage, adapter: int) -> Sequence[bytes]:
    """What the parts are remembered by: an adapter that changes the tower sees them otherwise."""
    return [key + adapter.to_bytes(4) for key in prepared.keys] if adapter else prepared.keys


class ImageEncoder:
    """Encodes the parts of many images at once; a part that was seen lately is not encoded again.

    Consecutive screenshots share most of their tiles, which is why the cache is keyed by part and not by image.
    """

    def __init__(self, model: Model, cache_bytes: int, *, cuda_graphs: bool = True) -> None:
        self._model = model
        self.graphs = TowerGraphs(model, cuda_graphs)
        self._cache: OrderedDict[bytes, Tensor] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._held = 0
        self.encoded_parts = 0
        self.reused_parts = 0

    @torch.no_grad()
    def encode(self, spans: Sequence[ImageSpan], adapter: int = 0) -> None:
        """Give each span its embeddings, as the adapter of that number sees them."""
        wanted: dict[bytes, tuple[Tensor, Grid]] = {}
        found: dict[bytes, Tensor] = {}
        for span in spans:
            span.prepared = span.prepared or prepare_image(span.again)
            image = span.prepared.image
            for key, part, grid in zip(_keys(span.prepared, adapter), _parts(image), image.grids, strict=True):
                if key in self._cache:
                    self._cache.move_to_end(key)
                    found[key] = self._cache[key]
                    self.reused_parts += 1
                elif key in wanted:
                    self.reused_parts += 1
                else:
                    wanted[key] = (part, grid)
        for key, part in zip(wanted, self._encoded(list(wanted.values()), adapter), strict=True):
            found[key] = part
            self._remember(key, part)
        self.encoded_parts += len(wanted)
        for span in spans:
            assert span.prepared is not None
            parts = [found[key] for key in _keys(span.prepared, adapter)]
            span.embeddings = parts[0] if len(parts) == 1 else torch.cat(parts)
            span.prepared = None

    def _encoded(self, wanted: Sequence[tuple[Tensor, Grid]], adapter: int) -> list[Tensor]:
        """Token embeddings of each part; small whole images of a size that comes again by graphs."""
        tokens: dict[int, Tensor] = {}
        by_size: dict[tuple[torch.Size, Grid], list[int]] = {}
        for index, (part, grid) in enumerate(wanted):
            if part.dtype == torch.uint8 and not self._model.adapters:
                by_size.setdefault((part.shape, grid), []).append(index)
        for (size, grid), members in by_size.items():
            if self.graphs.takes(size, grid):
                found = self.graphs.encode([wanted[index][0] for index in members], grid)
                tokens.update(zip(members, found, strict=True))
        left = [index for index in range(len(wanted)) if index not in tokens]
        if left:
            grids = [wanted[index][1] for index in left]
            patches = self._patches([wanted[index][0] for index in left], grids)
            with self._model.adapters.using(adapter) if adapter and self._model.adapters else nullcontext():
                tokens.update(zip(left, self._model.encode_patches(patches, grids), strict=True))
        return [tokens[index] for index in range(len(wanted))]

    def _patches(self, parts: Sequence[Tensor], grids: Sequence[Grid]) -> Tensor:
        """All patches on the device; those of images of one size, given as pixels, are made there at once."""
        vision, device = self._model.config.vision, self._model.device
        assert vision is not None
        counts = [rows * columns for rows, columns in grids]
        patches = torch.empty(sum(counts), vision.patch_values, device=device)
        places = patches.split(counts)
        by_size: dict[torch.Size, list[int]] = {}
        for index, part in enumerate(parts):
            if part.dtype == torch.uint8:
                by_size.setdefault(part.shape, []).append(index)
            else:  # straight to its place, and not copied on the host before
                places[index].copy_(part, non_blocking=True)
        for members in by_size.values():
            pixels = torch.empty(len(members), *parts[members[0]].shape, dtype=torch.uint8, device=device)
            for row, index in zip(pixels, members, strict=True):  # not one after another on the host before
                row.copy_(parts[index], non_blocking=True)
            made = patches_of_whole_images(pixels, grids[members[0]], vision)
            for index, part in zip(members, made.split(counts[members[0]]), strict=True):
                places[index].copy_(part)
        return patches

    def clear(self) -> None:
        """After the weights changed nothing that was encoded before is valid."""
        self._cache.clear()
        self._held = 0

    def _remember(self, key: bytes, tokens: Tensor) -> None:
        if tokens.nbytes > self._cache_bytes:
            return
        is_small = tokens.untyped_storage().nbytes() <= SMALL_BATCH
        self._cache[key] = tokens if is_small else tokens.clone()  # not a view that would keep a large batch alive
        self._held += tokens.nbytes
        while self._held > self._cache_bytes:
            _, oldest = self._cache.popitem(last=False)
            self._held -= oldest.nbytes
