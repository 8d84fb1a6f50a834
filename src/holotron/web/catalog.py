"""The list of a store's episodes, kept up to date at the cost of what changed."""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holotron.episodes.errors import EpisodeError
from holotron.episodes.reading import META, STEPS, read_info
from holotron.episodes.record import EpisodeInfo
from holotron.episodes.store import EpisodeStore
from holotron.web.detail import compact_json, without_folder
from holotron.web.rows import Row, row_of
from holotron.web.training_log import TrainingLog

Progress = Callable[[int, int], None]

# Many pages may be open on one store; they share a look at the disk.
REFRESH_SECONDS = 0.5
# A folder changed this recently may be changed again without its time telling.
SETTLED_SECONDS = 2.0
# To ask whether a writer is at work takes its lock for an instant, so it is not asked more often than this.
ASK_RUNNING_SECONDS, ASK_UNFINISHED_SECONDS = 5.0, 30.0


class _Stamp(NamedTuple):
    """What differs after every write to an episode: of its two files the inode, the time and the size."""

    meta: tuple[int, int, int]
    steps: tuple[int, int, int]


@dataclass
class _Entry:
    stamp: _Stamp
    row: Row | None = None
    text: str = ""  # the row as JSON
    version: int = 0
    info: EpisodeInfo | None = None
    damage: str = ""
    counted_bytes: int = 0
    counted_steps: int = 0
    being_written: bool = False
    asked: float = 0.0

    @property
    def final(self) -> bool:
        return self.info is not None and self.info.finished


class Catalog:
    """Rows with version numbers: a page that has seen version 7 is told what came after it. Threads may share one."""

    def __init__(self, store: EpisodeStore) -> None:
        self.store = store
        self.name = store.folder.resolve().name
        self.training = TrainingLog(store)
        self._folder = store.folder / "episodes"
        self._lock = threading.Lock()
        self._epoch = uuid.uuid4().hex[:8]
        self._version = 0
        self._entries: dict[str, _Entry] = {}
        self._removed: dict[str, int] = {}
        self._looked = -REFRESH_SECONDS
        self._folder_time = 0

    def rows(self, progress: Progress | None = None) -> list[Row]:
        """All rows, as they are now. Damaged episodes are among them, as such."""
        with self._lock:
            self._refresh(progress)
            rows = (entry.row for _, entry in sorted(self._entries.items()))
            return [row for row in rows if row is not None]

    def changes(self, cursor: str = "") -> str:
        """JSON of what is new since a cursor, with the next cursor; of everything, if the cursor is none of ours."""
        with self._lock:
            if time.monotonic() - self._looked >= REFRESH_SECONDS:
                self._refresh(None)
            epoch, _, number = cursor.partition(".")
            known = epoch == self._epoch and number.isdecimal()
            since = int(number) if known else 0
            rows = ",".join(entry.text for entry in self._entries.values() if entry.version > since)
            removed = [name for name, version in self._removed.items() if known and version > since]
            head: dict[str, object] = {"cursor": f"{self._epoch}.{self._version}", "whole": not known}
            head |= {"store": self.name, "trained": self.training.last}
            return f'{{"head":{json.dumps(head)},"removed":{json.dumps(removed)},"rows":[{rows}]}}'

    def _refresh(self, progress: Progress | None) -> None:
        self._looked = time.monotonic()
        # Finished episodes stay as they are, unless their folder is replaced, which its parent's time would tell.
        _, folder_time, _ = _stamp_of(self._folder)
        everything = folder_time != self._folder_time or time.time() - folder_time / 1e9 < SETTLED_SECONDS
        names = self._names() if everything else list(self._entries)
        for gone in self._entries.keys() - set(names):
            self._version += 1
            self._removed[gone] = self._version
            del self._entries[gone]
        for number, name in enumerate(names):
            entry = self._entries.get(name)
            if everything or entry is None or not entry.final:
                self._look_at(name, entry)
            if progress is not None and number % 100 == 0:
                progress(number, len(names))
        self._folder_time = folder_time

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
        except FileNotFoundError:
            return []

    def _look_at(self, name: str, before: _Entry | None) -> None:
        folder = self._folder / name
        stamp = _Stamp(_stamp_of(folder / META), _stamp_of(folder / STEPS))
        if before is None or before.stamp != stamp:
            entry = self._read(name, stamp, before)
        elif before.info is not None and not before.final and self._is_due(before):
            entry = before
            entry.being_written = self._ask(name, entry)
        else:
            return
        if entry.info is not None:
            steps = entry.info.step_count if entry.final else entry.counted_steps
            row = row_of(entry.info, steps, entry.being_written)
        else:
            row = Row(name, "damaged", entry.damage)
        if entry.row != row:
            self._version += 1
            entry.row, entry.version = row, self._version
            entry.text = compact_json(vars(row))
        self._entries[name] = entry
        self._removed.pop(name, None)

    def _read(self, name: str, stamp: _Stamp, before: _Entry | None) -> _Entry:
        entry = _Entry(stamp)
        if before is not None:
            entry.row, entry.text, entry.version = before.row, before.text, before.version
            if before.stamp.steps[0] == stamp.steps[0]:
                entry.counted_bytes, entry.counted_steps = before.counted_bytes, before.counted_steps
        folder = self._folder / name
        try:
            entry.info = read_info(folder)
            if not entry.final:
                self._count(folder / STEPS, entry)
                # A file that grows has a writer; only at first sight it may have lain there for long.
                entry.being_written = before is not None or self._ask(name, entry)
        except (EpisodeError, OSError) as error:
            entry.info = None
            entry.damage = without_folder(self.store, error)
        return entry

    def _count(self, path: Path, entry: _Entry) -> None:
        """Count the steps that were added since the last time."""
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < entry.counted_bytes:
                entry.counted_bytes = entry.counted_steps = 0
            file.seek(entry.counted_bytes)
            data = file.read()
        entry.counted_bytes += len(data)
        entry.counted_steps += data.count(b"\n")

    def _is_due(self, entry: _Entry) -> bool:
        pause = ASK_RUNNING_SECONDS if entry.being_written else ASK_UNFINISHED_SECONDS
        return time.monotonic() - entry.asked >= pause

    def _ask(self, name: str, entry: _Entry) -> bool:
        entry.asked = time.monotonic()
        try:
            return self.store.is_being_written(name)
        except (EpisodeError, OSError):
            return False


def _stamp_of(path: Path) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_size
