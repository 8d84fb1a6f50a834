"""What is told of an iteration of online RL, and written to metrics.jsonl."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from time import monotonic
from typing import Any

from holotron.train.meter import told_evaluation
from holotron.train.rl.collector import Collected
from holotron.train.rl.config import GrpoRecipe
from holotron.train.rl.policy_learner import UpdateReport


@dataclass
class GrpoProgress:
    """One iteration. Of all attempts that were judged: reward, success (by task, too) and steps of an episode.

    even_success: of all tasks that were tried so far, alike, each by its last attempts: what can be compared along a
    run, in which tasks are drawn by how they stand. kept, flat, stale: groups that were learned from, that taught
    nothing, that were too old. replayed: groups with a stored success. lost: attempts, to the infrastructure.
    staleness: updates between playing and learning, the mean and the most. answer_tokens: drawn tokens of an answer. Of
    drawn tokens that were learned from: entropy, ratio, the share that was clipped, importance weight, divergence kl.
    logprob_difference: between engine and trainer, of tokens that the present weights drew; scored_difference: the same
    for an episode that the engine scored with the weights it was just sent; alarm: that one is more than the recipe
    allows.
    steps_per_second: of environments, over the whole iteration. parts: seconds by part. checksum: of the weights that
    the engine plays with from now on. evaluation: what came of one that has ended since the line before.
    """

    step: int
    steps: int
    version: int
    reward: float | None
    success: float | None
    tasks: dict[str, float]
    episodes: int
    episode_steps: float | None
    kept: int
    flat: int
    stale: int
    replayed: int
    lost: int
    staleness: float | None
    most_staleness: int | None
    answer_tokens: float | None
    even_success: float | None = None
    loss: float | None = None
    gradient: float | None = None
    rate: float = 0.0
    entropy: float | None = None
    ratio: float | None = None
    clipped: float | None = None
    importance: float | None = None
    kl: float | None = None
    logprob_difference: float | None = None
    fresh_tokens: float = 0.0
    scored_difference: float | None = None
    alarm: bool = False
    imitation_loss: float | None = None
    steps_per_second: float = 0.0
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    checksum: str = ""
    evaluation: dict[str, Any] | None = None

    @property
    def difference(self) -> float | None:
        """The larger of both differences between engine and trainer."""
        known = [value for value in (self.logprob_difference, self.scored_difference) if value is not None]
        return max(known, default=None)

    @property
    def line(self) -> str:
        """Where a run stands, in a line."""

        def told(name: str, value: float | None, form: str = ".3f") -> str:
            return f"{name} {'–' if value is None else format(value, form)}"

        parts = " ".join(f"{name} {seconds:.1f}" for name, seconds in self.parts.items())
        return ", ".join(
            (
                f"iteration {self.step}/{self.steps} {told('success', self.success)} {told('reward', self.reward)} "
                f"{told('of all tasks alike', self.even_success)}",
                f"groups {self.kept} kept {self.flat} flat {self.stale} stale {self.replayed} replayed",
                f"{told('staleness', self.staleness, '.1f')} {told('steps', self.episode_steps, '.1f')}",
                f"{told('entropy', self.entropy)} {told('ratio', self.ratio)} {told('clipped', self.clipped)}",
                f"{told('difference', self.difference, '.1e')}{' ALARM' if self.alarm else ''}",
                f"{self.steps_per_second:.1f} steps/s",
                f"seconds: {parts}",
                *([told_evaluation(self.evaluation)] if self.evaluation else []),
            )
        )


class Stopwatch:
    """Seconds by part, since it was last read; a part inside another is not counted there. ended: told of each."""

    def __init__(self, ended: Callable[[str, float], None] = lambda *_: None) -> None:
        self._parts: dict[str, float] = {}
        self._inner, self._ended = 0.0, ended

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began, before, self._inner = monotonic(), self._inner, 0.0
        try:
            yield
        finally:
            whole = monotonic() - began
            self._parts[name] = self._parts.get(name, 0.0) + whole - self._inner
            self._ended(name, whole - self._inner)
            self._inner = before + whole

    def read(self) -> dict[str, float]:
        parts, self._parts = self._parts, {}
        return parts


def progress_of(
    recipe: GrpoRecipe, step: int, version: int, found: Collected, answer_tokens: float | None
) -> GrpoProgress:
    """What is known before anything was learned; step: how many iterations are behind."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for attempt in found.attempts:
        by_task[attempt.task].append(float(attempt.success))
    return GrpoProgress(
        step=step,
        steps=recipe.steps,
        version=version,
        reward=_mean([attempt.value(recipe.objective) for attempt in found.attempts]),
        success=_mean([float(attempt.success) for attempt in found.attempts]),
        tasks={task: fmean(values) for task, values in sorted(by_task.items())},
        episodes=len(found.attempts),
        episode_steps=_mean([float(attempt.steps) for attempt in found.attempts]),
        kept=len(found.groups),
        flat=found.flat,
        stale=found.stale,
        replayed=found.replayed,
        lost=found.lost,
        staleness=_mean([float(value) for value in found.staleness]),
        most_staleness=max(found.staleness, default=None),
        answer_tokens=answer_tokens,
    )


def add_updates(progress: GrpoProgress, updates: Sequence[UpdateReport]) -> None:
    """Tell what was learned; this waits for the device. The first update compares trainer and engine."""
    if not updates:
        return
    told = [update.sums.means() for update in updates]
    for name in ("entropy", "ratio", "clipped", "importance", "kl"):
        setattr(progress, name, _mean([value for means in told if (value := means[name]) is not None]))
    progress.loss = fmean(float(update.loss) for update in updates)
    progress.gradient = fmean(float(update.gradient) for update in updates)
    imitated = [float(update.imitation) for update in updates if update.imitation is not None]
    progress.imitation_loss = _mean(imitated)
    progress.logprob_difference = told[0]["logprob_difference"]
    progress.fresh_tokens = told[0]["fresh_tokens"] or 0.0


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
