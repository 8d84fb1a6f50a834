"""A file of lines that only grows. What a kill or a full disk cut off is no line, and is gone with the next one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from holotron.episodes.errors import BeingWritten
from holotron.episodes.files import full_disk_named, lock, sync_path, write_all


def whole_part(path: Path) -> bytes:
    """The lines that were written to their end; none of a file that is not there."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b""
    return data[: data.rfind(b"\n") + 1]


class LineLog:
    """One writer has it open at a time; its threads may share it. sync: what was appended survives a loss of power."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self.path, self._sync = path, sync
        self._descriptor: int | None = None
        self._turn = threading.Lock()

    def open(self) -> list[bytes]:
        """The lines that are there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        self._descriptor = lock(self.path)
        if self._descriptor is None:
            raise BeingWritten(f"{self.path} is being written by another process")
        whole = whole_part(self.path)
        self._cut(len(whole))
        if self._sync:
            sync_path(self.path.parent)
        return whole.splitlines()

    def append(self, line: bytes) -> None:
        """Add a line, whole or not at all; its end is a part of it."""
        with self._turn, full_disk_named(self.path):
            if self._descriptor is None:
                raise BeingWritten(f"{self.path} was closed before an answer came")
            size = os.lseek(self._descriptor, 0, os.SEEK_CUR)
            try:
                write_all(self._descriptor, line)
            except OSError:
                self._cut(size)
                raise
            if self._sync:
                os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _cut(self, size: int) -> None:
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, size)
        os.lseek(self._descriptor, size, os.SEEK_SET)
