"""How pages are opened and how long they may take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holotron.suites.miniwob.tasks import MiniWoBError


@dataclass(frozen=True)
class MiniWoBConfig:
    """Sizes and limits.

    browsers: Chromium processes that share the pages; a crash takes down the pages of one.
    time_limit: seconds after which the page ends the episode with -1; "task" for the task's own (10 s for most), None
    for never: how fast a policy thinks then plays no part, and steps are what is limited.
    settle: longest wait, in seconds, for animations and short timers to end after an action; 0 does not wait, and a
    page that was not quiet by then is not waited for again in that episode.
    timeout: seconds without an answer after which a page counts as hung.
    """

    pages: int = 1
    browsers: int = 1
    executable: Path | None = None
    time_limit: float | Literal["task"] | None = None
    settle: float = 2.0
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for name in ("pages", "browsers"):
            if getattr(self, name) < 1:
                raise MiniWoBError(f"MiniWoBConfig.{name} is {getattr(self, name)}; it must be at least 1")
        if isinstance(self.time_limit, float | int) and self.time_limit <= 0:
            raise MiniWoBError(f"MiniWoBConfig.time_limit is {self.time_limit}; use None for no limit")
        if self.settle < 0 or self.timeout <= self.settle:
            raise MiniWoBError(
                f"MiniWoBConfig.settle is {self.settle}; it must lie between 0 and timeout {self.timeout}"
            )
