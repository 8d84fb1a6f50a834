"""What came of the episodes of a store, task by task, as a table, and pictures of the first of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holotron.episodes.record import EpisodeInfo
from holotron.episodes.store import EpisodeStore


@dataclass(frozen=True)
class TaskSummary:
    """mean_steps: of the solved episodes. losses: how the others were lost, the most frequent way first."""

    task: str
    solved: int
    played: int
    mean_steps: float
    losses: str


def summarise(store: EpisodeStore, names: Iterable[str]) -> list[TaskSummary]:
    """Of each task; episodes that the infrastructure spoiled are left out, and so are tasks that were not played."""
    played = _by_task(store)
    return [_summary(name, played[name]) for name in names if name in played]


def markdown(rows: Sequence[TaskSummary], command: str) -> str:
    """The summaries as a table, with the command that made it."""
    solved, played = sum(row.solved for row in rows), sum(row.played for row in rows)
    lines = [
        f"{solved} of {played} episodes solved ({solved / max(played, 1):.1%}): `{command}`",
        "",
        "| task | solved | steps | how the others were lost |",
        "|---|---:|---:|---|",
    ]
    lines += [f"| {row.task} | {row.solved}/{row.played} | {row.mean_steps:.1f} | {row.losses} |" for row in rows]
    return "\n".join(lines) + "\n"


def save_pictures(store: EpisodeStore, folder: Path) -> None:
    """The screenshots of each task's first episode, and beside them what was asked for and done."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, infos in _by_task(store).items():
        first = min(infos, key=lambda info: (info.task.seed or 0, info.id))
        lines = [first.task.text]
        for step in store.steps(first.id):
            lines.append(step.action.text if step.action is not None else "")
            if step.observation.image is not None:
                (folder / f"{name}-{step.index}.png").write_bytes(store.image(step.observation.image))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _by_task(store: EpisodeStore) -> dict[str, list[EpisodeInfo]]:
    played: dict[str, list[EpisodeInfo]] = {}
    for info in store.list_episodes(finished=True):
        if info.counts and info.task.name is not None:
            played.setdefault(info.task.name, []).append(info)
    return played


def _summary(name: str, infos: Sequence[EpisodeInfo]) -> TaskSummary:
    solved = [info for info in infos if info.outcome is not None and info.outcome.success]
    steps = sum(info.step_count or 0 for info in solved) / max(len(solved), 1)
    ways = Counter(_losses(infos)).most_common()
    return TaskSummary(name, len(solved), len(infos), steps, ", ".join(f"{count}× {way}" for way, count in ways))


def _losses(infos: Sequence[EpisodeInfo]) -> Iterator[str]:
    for info in infos:
        outcome = info.outcome
        if outcome is not None and not outcome.success:
            if outcome.reason == "done":
                yield f"reward {outcome.reward or 0:.2g}"
            else:
                yield f"{outcome.reason} {outcome.detail.splitlines()[0][:80] if outcome.detail else ''}".strip()
