"""The four ways MiniWoB++ is evaluated: which tasks, which seeds, how many steps, what counts as solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holotron.suites.miniwob.tasks import all_tasks, find_task
from holotron.suites.suite import EvalProtocol

CONTINUOUS_SUCCESS = 0.9
# Partial rewards are sums of fractions, which may miss 1 by a rounding error.
ROUNDING = 1e-9

# positive: anything above 0. full: 1. strict: 1, or 0.9 where rewards are continuous and pixels rarely give 1.
Rule = Literal["positive", "full", "strict"]


@dataclass(frozen=True)
class MiniWoBResult:
    """Where an episode stands. raw_reward is in [-1, 1]; `reward` is what the package scales by the time used."""

    done: bool
    raw_reward: float = 0.0
    reward: float = 0.0
    reason: str = ""


def is_success(rule: Rule, task: str, raw_reward: float) -> bool:
    """Whether the reward an episode ended with counts as solved."""
    if rule == "positive":
        return raw_reward > 0
    if rule == "strict" and find_task(task).reward == "continuous":
        return raw_reward >= CONTINUOUS_SUCCESS
    return raw_reward >= 1 - ROUNDING


def protocols() -> tuple[EvalProtocol, ...]:
    tasks = all_tasks()
    pix2act = tuple(name for name, task in tasks.items() if task.pix2act)
    webgum = tuple(name for name, task in tasks.items() if task.webgum)
    return (
        EvalProtocol("browsergym-125", tuple(tasks), 5, 10, "positive"),
        EvalProtocol("strict-125", tuple(tasks), 5, 10, "strict"),
        EvalProtocol("pix2act-58", pix2act, 100, 30, "positive"),
        # WebGUM names no limit on steps; this is Pix2Act's.
        EvalProtocol("webgum-56", webgum, 100, 30, "full"),
    )
