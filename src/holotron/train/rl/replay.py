"""Stored successes: what a group that failed throughout is shown of its task."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence


class SuccessBuffer:
    """The ids of the last successes of each task, the oldest first."""

    def __init__(self, most: int, kept: Mapping[str, Sequence[str]] | None = None) -> None:
        self._most = most
        self._kept = {task: list(ids) for task, ids in (kept or {}).items()}

    def add(self, task: str, episode: str) -> None:
        ids = self._kept.setdefault(task, [])
        if self._most and episode not in ids:
            ids.append(episode)
            del ids[: -self._most]

    def draw(self, task: str, seed: str) -> str | None:
        """One of them, chosen by the seed; None where there is none."""
        ids = self._kept.get(task, [])
        return random.Random(f"replay/{seed}").choice(ids) if ids else None

    def state(self) -> dict[str, list[str]]:
        return {task: list(ids) for task, ids in self._kept.items() if ids}
