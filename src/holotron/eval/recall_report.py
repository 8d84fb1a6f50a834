"""What a memory test found, trial by trial and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from holotron.eval.recall_pages import CONDITIONS, SHOWN_AT, Condition
from holotron.eval.statistics import wilson


@dataclass(frozen=True)
class RecallResult:
    """One trial. `noted`: the code was in an earlier reply, so that words may have carried it. Tokens are per step."""

    condition: Condition
    asked_at: int
    answer: str
    right: bool
    noted: bool = False
    prompt_tokens: tuple[int | None, ...] = ()
    cached_tokens: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class RecallScore:
    """The trials of one condition at one distance. Tokens are means over their steps, None where none were counted."""

    condition: Condition
    asked_at: int
    right: int
    trials: int
    noted: int
    prompt_tokens: float | None
    cached_tokens: float | None

    @classmethod
    def of(cls, condition: Condition, asked_at: int, results: Sequence[RecallResult]) -> RecallScore:
        group = [each for each in results if (each.condition, each.asked_at) == (condition, asked_at)]
        return cls(
            condition,
            asked_at,
            sum(each.right for each in group),
            len(group),
            sum(each.noted for each in group),
            _mean([tokens for each in group for tokens in each.prompt_tokens]),
            _mean([tokens for each in group for tokens in each.cached_tokens]),
        )

    @property
    def accuracy(self) -> float:
        return self.right / self.trials if self.trials else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.right, self.trials)

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {
            "steps_ago": self.asked_at - SHOWN_AT,
            "accuracy": round(self.accuracy, 4),
            "interval_95": [round(end, 4) for end in self.interval],
        }

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.accuracy:.0f}% ({100 * low:.0f}–{100 * high:.0f})" if self.trials else ""


@dataclass(frozen=True)
class RecallReport:
    """What was measured, trial by trial; `scores` counts them."""

    model: str
    seed: int
    size: tuple[int, int]
    results: tuple[RecallResult, ...]

    @property
    def distances(self) -> list[int]:
        return sorted({result.asked_at for result in self.results})

    @property
    def scores(self) -> list[RecallScore]:
        """By distance, the three conditions beside each other."""
        scores = [self.score(condition, asked_at) for asked_at in self.distances for condition in CONDITIONS]
        return [score for score in scores if score.trials]

    def score(self, condition: Condition, asked_at: int) -> RecallScore:
        return RecallScore.of(condition, asked_at, self.results)

    def to_dict(self) -> dict[str, Any]:
        scores = [score.to_dict() for score in self.scores]
        settings = {"model": self.model, "seed": self.seed, "size": list(self.size), "shown_at": SHOWN_AT}
        return {"benchmark": "recall", **settings, "scores": scores}

    def table(self) -> str:
        """The scores as a Markdown table, a row per distance."""
        lines = ["| asked at step | " + " | ".join(CONDITIONS) + " |", "|--:|" + "--:|" * len(CONDITIONS)]
        for asked_at in self.distances:
            cells = [str(self.score(condition, asked_at)) for condition in CONDITIONS]
            lines.append(f"| {asked_at} | " + " | ".join(cells) + " |")
        return "\n".join(lines)


def _mean(tokens: Sequence[int | None]) -> float | None:
    counted = [each for each in tokens if each is not None]
    return round(fmean(counted), 1) if counted else None
