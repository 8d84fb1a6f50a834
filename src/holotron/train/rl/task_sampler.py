"""Which task comes next: most often one that about half of the attempts solve, for it teaches the most."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence


class TaskSampler:
    """Draws tasks by the number of the draw, so that a run that goes on draws what it would have drawn.

    The success of a task is estimated from its last attempts, about `memory` of them, and one success and one failure
    more: what was not tried yet counts as half solved. shares: of several suites, how often tasks of each are drawn.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        seed: int,
        *,
        uniform: float = 0.2,
        memory: float = 32.0,
        shares: Mapping[str, float] | None = None,
        kept: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self._tasks, self._seed, self._uniform, self._memory = tuple(tasks), seed, uniform, memory
        self._shares = dict(shares or {})
        counts = kept or {}
        self._counts = {task: (counts[task][0], counts[task][1]) if task in counts else (0.0, 0.0) for task in tasks}

    def add(self, task: str, succeeded: int, attempts: int) -> None:
        """Count attempts at a task; as many older ones are forgotten as are more than the memory holds."""
        good, total = self._counts[task]
        keep = min(1.0, max(0.0, self._memory - attempts) / total) if total else 0.0
        self._counts[task] = good * keep + succeeded, total * keep + attempts

    def success(self, task: str) -> float:
        good, total = self._counts[task]
        return (good + 1) / (total + 2)

    def even_success(self) -> float | None:
        """The mean success of all tasks that were tried, each by its last attempts, however often it was drawn."""
        tried = [good / total for good, total in self._counts.values() if total]
        return sum(tried) / len(tried) if tried else None

    def weights(self) -> list[float]:
        """How often each task is drawn, summing to 1: evenly, and by the variance p (1 - p) of its success p."""
        spread = {task: self.success(task) * (1 - self.success(task)) for task in self._tasks}
        if not self._shares:
            return self._drawn(spread)
        whole = sum(self._shares.values())
        found = dict[str, float]()
        for suite, share in self._shares.items():
            own = {task: value for task, value in spread.items() if task.startswith(f"{suite}/")}
            found |= zip(own, (share / whole * weight for weight in self._drawn(own)), strict=True)
        return [found[task] for task in self._tasks]

    def _drawn(self, spread: Mapping[str, float]) -> list[float]:
        even, whole = self._uniform / len(spread), sum(spread.values())
        return [even + (1 - self._uniform) * value / whole for value in spread.values()]

    def draw(self, number: int) -> str:
        return random.Random(f"{self._seed}/task/{number}").choices(self._tasks, self.weights())[0]

    def state(self) -> dict[str, tuple[float, float]]:
        return {task: counts for task, counts in self._counts.items() if counts[1]}
