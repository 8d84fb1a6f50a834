"""An episode as one line of the list: what the page filters, sorts and counts by."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from holotron.episodes.record import EpisodeInfo

RowOutcome: TypeAlias = Literal[
    "success", "failed", "unscored", "infrastructure", "running", "unfinished", "damaged"
]  # fmt: skip


class Row(TypedDict):
    """Seeds and weight versions are texts here: JavaScript rounds whole numbers beyond 2⁵³."""

    id: str
    outcome: RowOutcome
    reason: str
    detail: str
    task: str
    benchmark: str
    name: str
    url: str
    seed: str
    sample: int
    model: str
    weights: str
    reward: float | None
    steps: int | None
    started: float | None
    ended: float | None


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
        model=info.policy.model,
        weights="" if info.policy.weight_version is None else str(info.policy.weight_version),
        reward=outcome.reward if outcome else None,
        steps=steps,
        started=info.started,
        ended=info.ended,
    )


def damaged_row(episode_id: str, what: str) -> Row:
    """The line of an episode that cannot be read, and why."""
    return Row(
        id=episode_id,
        outcome="damaged",
        reason="",
        detail=what,
        task="",
        benchmark="",
        name="",
        url="",
        seed="",
        sample=0,
        model="",
        weights="",
        reward=None,
        steps=None,
        started=None,
        ended=None,
    )


def outcome_of(info: EpisodeInfo, being_written: bool) -> RowOutcome:
    """One word for how it ended; unscored if nobody said whether that was a success."""
    outcome = info.outcome
    if outcome is None:
        return "running" if being_written else "unfinished"
    if outcome.reason == "infrastructure":
        return "infrastructure"
    if outcome.success is None:
        return "unscored"
    return "success" if outcome.success else "failed"
