"""The updates that the present weights are made of, so that an engine that is started again can be brought to them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_PARTS = 64  # updates of a part of the weights since the last of all


class WeightsLost(Exception):
    """The present weights cannot be read again."""


@dataclass(frozen=True)
class WeightUpdate:
    """Where weights came from, and what the files there were like. `spool` holds what was sent, and is ours.

    path: None where a trainer sent them to the engine itself.
    """

    path: str | None
    epoch: int
    version: str
    files: tuple[tuple[str, int, int], ...]
    spool: tempfile.TemporaryDirectory[str] | None = None


class WeightHistory:
    """An update of all weights makes those before it forgotten."""

    def __init__(self) -> None:
        self._updates: list[WeightUpdate] = []
        self._is_cut = False

    def add(self, update: WeightUpdate, whole: bool) -> None:
        if whole or len(self._updates) == MOST_PARTS:
            self.clear()
            self._is_cut = not whole
        self._updates.append(update)

    def updates(self) -> list[WeightUpdate]:
        """What to do again, in order; WeightsLost where the files are not those of then."""
        if self._is_cut:
            raise WeightsLost(f"more than {MOST_PARTS} updates of parts of them were made")
        for update in self._updates:
            if update.path is None:
                raise WeightsLost(f"version {update.version!r} came from a trainer, and was nowhere but in the engine")
            if describe_files(update.path) != update.files:
                raise WeightsLost(f"the files of version {update.version!r} are gone or have changed")
        return list(self._updates)

    def saved(self) -> dict[str, Any]:
        """As JSON; what was sent is in a folder that may be gone, which `updates` will say."""
        return {"cut": self._is_cut, "updates": [[u.path, u.epoch, u.version, u.files] for u in self._updates]}

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._is_cut = saved["cut"]
        for path, epoch, version, files in saved["updates"]:
            known = tuple((name, size, changed) for name, size, changed in files)
            self._updates.append(WeightUpdate(path, epoch, version, known))

    def clear(self) -> None:
        for update in self._updates:
            if update.spool is not None:
                update.spool.cleanup()
        self._updates = []


def describe_files(path: str) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the weights at a path; nothing where there are none."""
    try:
        place = Path(path)
        files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
        return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
    except (OSError, ValueError):
        return ()
