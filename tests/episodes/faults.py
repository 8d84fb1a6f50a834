"""Something goes wrong at the nth file operation: the disk is full, or the process is gone."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

OPERATIONS = ("mkdir", "open", "write", "fsync", "replace", "rename", "ftruncate")
# Room is needed by all but this one, which only gives some back.
NEEDS_ROOM = OPERATIONS[:-1]


class Operations:
    """How many operations there were; the one at `at`, or all from there on, fail."""

    def __init__(self, at: int | None, fail: Callable[[], None], names: tuple[str, ...], lasting: bool = False) -> None:
        self.count = 0
        self._at, self._fail, self._names, self._lasting = at, fail, names, lasting

    @contextmanager
    def watched(self) -> Iterator[Operations]:
        originals = {name: getattr(os, name) for name in self._names}
        try:
            for name, original in originals.items():
                setattr(os, name, self._wrap(name, original))
            yield self
        finally:
            for name, original in originals.items():
                setattr(os, name, original)

    def _wrap(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return original(*arguments, **options)
            self.count += 1
            if self._at is not None and (self.count == self._at or (self._lasting and self.count > self._at)):
                if name == "write":
                    original(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                self._fail()
            return original(*arguments, **options)

        return operation


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
