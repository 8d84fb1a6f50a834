"""What a training run says of its iterations, where the store of episodes lies in a run's folder."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

from holotron.episodes.store import EpisodeStore

NAME = "metrics.jsonl"
FIELDS = (
    *("success", "even_success", "reward", "steps_per_second", "episode_steps", "answer_tokens", "staleness"),
    *("entropy", "ratio", "clipped", "kl", "logprob_difference", "scored_difference", "kept", "flat", "stale"),
    *("replayed", "lost", "loss"),
)

SECONDS = "seconds of "  # and a part of an iteration


class TrainingLog:
    """The lines of a run's metrics, read again when the file has changed. Threads may share one."""

    def __init__(self, store: EpisodeStore) -> None:
        self._path: Path = store.folder.resolve().parent / NAME
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._lines: list[dict[str, Any]] = []

    def lines(self, after: int = 0) -> list[dict[str, Any]]:
        """Of each iteration after that one: its number, figures, and success by task. None where nothing trains."""
        with self._lock:
            try:
                status = os.stat(self._path)
                if (stamp := (status.st_mtime_ns, status.st_size)) != self._stamp:
                    text = self._path.read_text(encoding="utf-8", errors="replace")
                    self._lines = [line for each in text.splitlines() if (line := _line_of(each)) is not None]
                    self._stamp = stamp
            except OSError:
                self._lines, self._stamp = [], None
            return [line for line in self._lines if line["step"] > after]

    @property
    def last(self) -> int:
        """The last iteration that was told of; 0 where there is none."""
        lines = self.lines()
        return int(lines[-1]["step"]) if lines else 0


def _line_of(text: str) -> dict[str, Any] | None:
    """What the page shows of a line; None for one that is torn or tells of something else."""
    try:
        value = json.loads(text)
        tasks, step = value["tasks"], value["step"]
        if not isinstance(step, int) or not isinstance(tasks, dict):
            return None
    except (ValueError, KeyError, TypeError):
        return None
    parts = value.get("parts")
    told = value | {f"{SECONDS}{name}": seconds for name, seconds in (parts if isinstance(parts, dict) else {}).items()}
    names = [*FIELDS, *(name for name in told if name.startswith(SECONDS))]
    figures = {name: told[name] for name in names if _is_number(told.get(name))}
    return {"step": step, **figures, "tasks": {name: share for name, share in tasks.items() if _is_number(share)}}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
