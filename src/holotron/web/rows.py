"""An episode as one line of the list: what the page filters, sorts and counts by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from holotron.episodes.record import EpisodeInfo

RowOutcome: TypeAlias = Literal[
    "success", "failed", "unscored", "infrastructure", "running", "unfinished", "damaged"
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Seeds and weight versions are texts here: JavaScript rounds whole numbers beyond 2⁵³.

    group: of attempts that online RL compares. Of an episode that cannot be read there is only the id, and the detail
    says why.
    """

    id: str
    outcome: RowOutcome
    detail: str = ""
    reason: str = ""
    task: str = ""
    benchmark: str = ""
    name: str = ""
    url: str = ""
    seed: str = ""
    sample: int = 0
    group: str = ""
    model: str = ""
    weights: str = ""
    reward: float | None = None
    steps: int | None = None
    started: float | None = None
    ended: float | None = None


def row_of(info: EpisodeInfo, steps: int | None, being_written: bool) -> Row:
    """The line of an episode that can be read."""
    task, outcome = info.task, info.outcome
    return Row(
        id=info.id,
        outcome=outcome_of(info, being_written),
        reason=outcome.reason if outcome else "",
        detail=outcome.detail if outcome else "",
        task=task.text,
        benchmark=task.benchmark or "",
        name=task.name or "",
        url=task.url or "",
        seed="" if task.seed is None else str(task.seed),
        sample=task.sample,
        group=str(task.extra.get("group", "")),
        model=info.policy.model,
        weights="" if info.policy.weight_version is None else str(info.policy.weight_version),
        reward=outcome.reward if outcome else None,
        steps=steps,
        started=info.started,
        ended=info.ended,
    )


def outcome_of(info: EpisodeInfo, being_written: bool) -> RowOutcome:
    """One word for how it ended; unscored if nothing said whether that was a success."""
    outcome = info.outcome
    if outcome is None:
        return "running" if being_written else "unfinished"
    if outcome.reason == "infrastructure":
        return "infrastructure"
    if outcome.success is None:
        return "unscored"
    return "success" if outcome.success else "failed"
