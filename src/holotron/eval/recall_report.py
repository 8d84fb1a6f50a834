"""What a memory test found: trial by trial, on disk as it goes on, and counted in the end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from holotron.eval.recall_pages import CONDITIONS, SHOWN_AT, Condition
from holotron.eval.statistics import wilson

LOG = "trials.jsonl"


@dataclass(frozen=True)
class RecallResult:
    """One trial. `noted`: the code was in an earlier reply, so that words may have carried it. Tokens are per step."""

    condition: Condition
    asked_at: int
    number: int
    code: str
    answer: str
    right: bool
    noted: bool = False
    prompt_tokens: list[int | None] = field(default_factory=list)
    cached_tokens: list[int | None] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.condition}/{self.asked_at}/{self.number}"


@dataclass(frozen=True)
class RecallScore:
    """The trials of one condition at one distance. Tokens are means over their steps, None where nobody counted."""

    condition: Condition
    asked_at: int
    right: int
    trials: int
    noted: int
    prompt_tokens: float | None
    cached_tokens: float | None

    @property
    def accuracy(self) -> float:
        return self.right / self.trials if self.trials else 0.0

    def to_dict(self) -> dict[str, Any]:
        interval = [round(end, 4) for end in wilson(self.right, self.trials)]
        return asdict(self) | {
            "steps_ago": self.asked_at - SHOWN_AT,
            "accuracy": round(self.accuracy, 4),
            "interval_95": interval,
        }


@dataclass(frozen=True)
class RecallReport:
    """What was measured, trial by trial; `scores` counts them."""

    model: str
    seed: int
    size: tuple[int, int]
    results: tuple[RecallResult, ...]

    @property
    def scores(self) -> list[RecallScore]:
        """By distance, the three conditions beside each other."""
        groups: dict[tuple[int, Condition], list[RecallResult]] = {}
        for result in self.results:
            groups.setdefault((result.asked_at, result.condition), []).append(result)
        ordered = sorted(groups.items(), key=lambda item: (item[0][0], CONDITIONS.index(item[0][1])))
        return [_score(condition, asked_at, group) for (asked_at, condition), group in ordered]

    def score(self, condition: Condition, asked_at: int) -> RecallScore:
        return _score(
            condition, asked_at, [r for r in self.results if (r.condition, r.asked_at) == (condition, asked_at)]
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "benchmark": "recall",
            "model": self.model,
            "seed": self.seed,
            "size": list(self.size),
            "shown_at": SHOWN_AT,
            "scores": [score.to_dict() for score in self.scores],
        }

    def table(self) -> str:
        """The scores as a Markdown table, a row per distance."""
        lines = ["| asked at step | " + " | ".join(CONDITIONS) + " |", "|--:|" + "--:|" * len(CONDITIONS)]
        for asked_at in sorted({result.asked_at for result in self.results}):
            cells = [_cell(self.score(condition, asked_at)) for condition in CONDITIONS]
            lines.append(f"| {asked_at} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


class TrialLog:
    """Finished trials by their key, on disk if there is a folder: a line each, after one that says of what."""

    def __init__(self, folder: Path | None, settings: dict[str, Any]) -> None:
        self.results: dict[str, RecallResult] = {}
        self._path = None if folder is None else folder / LOG
        if folder is None or self._path is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]  # a line that a kill cut off is done again
        if whole != data:
            os.truncate(self._path, len(whole))
        lines = whole.splitlines()
        if not lines:
            self._append(settings)
            return
        try:
            found = json.loads(lines[0])
            for line in lines[1:]:
                result = RecallResult(**json.loads(line))
                self.results[result.key] = result
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self._path} is damaged ({error}); remove it to begin again") from None
        if found != settings:
            raise ValueError(f"{self._path} holds trials of {found}, not of {settings}; choose another folder")

    def add(self, result: RecallResult) -> None:
        self._append(asdict(result))
        self.results[result.key] = result

    def _append(self, value: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())


def _score(condition: Condition, asked_at: int, group: Sequence[RecallResult]) -> RecallScore:
    prompt = [tokens for result in group for tokens in result.prompt_tokens if tokens is not None]
    cached = [tokens for result in group for tokens in result.cached_tokens if tokens is not None]
    return RecallScore(
        condition=condition,
        asked_at=asked_at,
        right=sum(result.right for result in group),
        trials=len(group),
        noted=sum(result.noted for result in group),
        prompt_tokens=round(fmean(prompt), 1) if prompt else None,
        cached_tokens=round(fmean(cached), 1) if cached else None,
    )


def _cell(score: RecallScore) -> str:
    if not score.trials:
        return ""
    low, high = wilson(score.right, score.trials)
    return f"{100 * score.accuracy:.0f}% ({100 * low:.0f}–{100 * high:.0f})"
