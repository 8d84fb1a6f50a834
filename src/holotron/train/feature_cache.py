"""What a frozen vision tower makes of each image, kept on disk, so that later epochs read it instead of running it.

A file is named by its image and lies in a folder named by the tower: its weights, configuration and type. It appears
whole or not at all, and carries a checksum; one that is damaged is computed again. Nothing is evicted: when the limit
is reached, or the disk is full, the images that have no file yet are computed each time.
"""

from __future__ import annotations

import hashlib
import logging
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from holotron.episodes.errors import StoreFull
from holotron.episodes.files import PARTIAL, write_whole
from holotron.model.model import Model
from holotron.train.batches import TrainingBatch
from holotron.train.parallel import Ranks, whole

log = logging.getLogger(__name__)

READERS = 8
CHECKSUM = 4  # bytes at the end of a file
ABANDONED = 3600.0  # seconds after which an unfinished file is nobody's


@dataclass(frozen=True)
class FeatureCacheConfig:
    """folder: where features are kept, seen from the recipe; empty for no cache. gibibytes: the most that it holds."""

    folder: str = ""
    gibibytes: float = 100.0

    def __post_init__(self) -> None:
        if not self.gibibytes > 0:
            raise ValueError(f"gibibytes is {self.gibibytes}; it must be more than 0")


class FeatureCache:
    """One rank's way to the cache. Ranks and runs may share a folder."""

    def __init__(self, folder: Path, limit: int, tower: str, ranks: Ranks = Ranks()) -> None:
        self.folder = folder / tower
        self._ranks = ranks
        self._readers = ThreadPoolExecutor(READERS, "features")
        self.folder.mkdir(parents=True, exist_ok=True)
        used, *_ = ranks.gather(_tidied(folder) if ranks.first else 0)
        self._room = max(0, limit - used) // ranks.size

    def features(self, batch: TrainingBatch, compute: Callable[[], Tensor]) -> Tensor:
        """The tower's features of all images of a batch, read, or computed where one is missing."""
        found = list(self._readers.map(self._read, batch.pictures))
        # A sharded tower is run by all ranks or by none.
        if any(self._ranks.gather(not found or any(features is None for features in found))):
            features_MF = compute()
            self._keep(batch, features_MF, found)
            return features_MF
        read = torch.cat([features for features in found if features is not None])
        features_MF = read.new_zeros(len(batch.image_token_MR), read.shape[1])
        features_MF[: len(read)] = read
        return features_MF.to(batch.image_token_MR.device)

    def _read(self, picture: tuple[str, int]) -> Tensor | None:
        name, rows = picture
        path = self._path(name)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        body, checksum = data[:-CHECKSUM], data[-CHECKSUM:]
        try:
            if zlib.crc32(body).to_bytes(CHECKSUM) == checksum:
                features = load(body)["features"]
                if len(features) == rows:
                    return features
        except (SafetensorError, KeyError):
            pass
        log.warning("the features in %s are damaged; they are computed again", path)
        return None

    def _keep(self, batch: TrainingBatch, features_MF: Tensor, found: list[Tensor | None]) -> None:
        """Write what was missing, as far as there is room."""
        start = 0
        for (name, rows), known in zip(batch.pictures, found, strict=True):
            part, start = features_MF[start : start + rows], start + rows
            if known is not None or self._room < part.nbytes:
                continue
            body = save({"features": part.detach().cpu().contiguous()})
            path = self._path(name)
            try:
                path.parent.mkdir(exist_ok=True)
                # Not synced: what a loss of power leaves of a file does not match its checksum.
                write_whole(path, body + zlib.crc32(body).to_bytes(CHECKSUM), sync=False)
                self._room -= len(body)
            except (StoreFull, OSError) as error:
                log.warning("no more features are kept: %s", error)
                self._room = 0

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / f"{name}.features"


def tower_name(model: Model, dtype: torch.dtype) -> str:
    """What the features of an image depend on beside the image, as one word; every rank must ask."""
    assert model.vision is not None
    digest = hashlib.blake2b(f"{model.vision.config}{dtype}".encode(), digest_size=16)
    for name, weight in model.vision.named_parameters():
        digest.update(f"{name}{weight.dtype}".encode())
        digest.update(whole(weight.detach()).cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _tidied(folder: Path) -> int:
    """The bytes in a folder, once what was being written when a process was killed is removed."""
    used = 0
    for path in folder.rglob("*.*"):
        try:
            about = path.stat()
            if path.name.endswith(PARTIAL) and time.time() - about.st_mtime > ABANDONED:
                path.unlink()
            else:
                used += about.st_size
        except OSError:  # another run may just have given it its name
            continue
    return used
