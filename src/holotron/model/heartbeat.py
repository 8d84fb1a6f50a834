"""Long work that says now and then that it goes on."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Self


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


class Heartbeat:
    """Tells what is being done, and for how long already, whenever nothing was told for some seconds."""

    def __init__(self, doing: str, tell: Callable[[str], None] = to_stderr, seconds: float = 15.0) -> None:
        self._tell = tell
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self.now(doing)

    def now(self, doing: str) -> None:
        """From here on this is being done."""
        self._doing, self._began = doing, time.monotonic()
        self.heard()

    def heard(self) -> None:
        """Something was told just now."""
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(max(0.01, self._told + self._seconds - time.monotonic())):
            if time.monotonic() - self._told >= self._seconds:
                self._tell(f"{self._doing}: {time.monotonic() - self._began:.0f} s so far")
                self.heard()
