"""Writing so that a crash, a kill or a full disk leaves either the old or the new, never something between."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holotron.episodes.errors import StoreFull

PARTIAL = ".partial"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Inside, an error about missing room becomes StoreFull."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        reason = os.strerror(error.errno or 0)
        raise StoreFull(f"{path} could not be written ({reason}); make room and run the same again") from error


@contextmanager
def whole_file(path: Path, sync: bool = True, mark: str = "") -> Iterator[Path]:
    """Inside, write the file at the given path; then it takes its place whole, or not at all after an error."""
    partial = path.with_name(f".{path.name}{mark}{PARTIAL}")
    with full_disk_named(path):
        try:
            yield partial
            if sync:
                sync_path(partial)
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise
        if sync:
            sync_path(path.parent)


def write_whole(path: Path, data: bytes, sync: bool) -> None:
    """Write a file that appears whole or not at all, replacing the one before. Many may write the same at once."""
    with whole_file(path, sync, f".{uuid.uuid4().hex}") as partial:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_path(path: Path) -> None:
    """Make a file or a folder's list of files survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(path: Path) -> int | None:
    """An open file with a lock on it, or None if it is locked. Closing it, or the end of the process, unlocks it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The folder may have been moved away while we waited: then the lock is on another file than the path.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
