"""The four ways MiniWoB++ is evaluated: which tasks, which seeds, how many steps, what counts as solved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holotron.suites.miniwob.errors import MiniWoBError
from holotron.suites.miniwob.tasks import all_tasks, find_task

# A protocol of n episodes a task plays the first n held-out seeds, the same for every task, so that smaller protocols
# are parts of larger ones. Training draws from the other range, and no seed is in both.
TRAINING_SEEDS = range(1_000_000_000)
HELD_OUT_SEEDS = range(1_000_000_000, 2_000_000_000)

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


@dataclass(frozen=True)
class Protocol:
    """A named evaluation. An episode that has not ended after `max_steps` actions is a failure."""

    name: str
    tasks: tuple[str, ...]
    episodes_per_task: int
    max_steps: int
    rule: Rule

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds played on each task."""
        return tuple(HELD_OUT_SEEDS[: self.episodes_per_task])


def is_success(rule: Rule, task: str, raw_reward: float) -> bool:
    """Whether the reward an episode ended with counts as solved."""
    if rule == "positive":
        return raw_reward > 0
    if rule == "strict" and find_task(task).reward == "continuous":
        return raw_reward >= CONTINUOUS_SUCCESS
    return raw_reward >= 1 - ROUNDING


def find_protocol(name: str) -> Protocol:
    for protocol in protocols():
        if protocol.name == name:
            return protocol
    raise MiniWoBError(f"there is no protocol {name!r}; there are {', '.join(p.name for p in protocols())}")


def protocols() -> tuple[Protocol, ...]:
    tasks = all_tasks()
    pix2act = tuple(name for name, task in tasks.items() if task.pix2act)
    webgum = tuple(name for name, task in tasks.items() if task.webgum)
    return (
        Protocol("browsergym-125", tuple(tasks), 5, 10, "positive"),
        Protocol("strict-125", tuple(tasks), 5, 10, "strict"),
        Protocol("pix2act-58", pix2act, 100, 30, "positive"),
        # WebGUM names no limit on steps; this is Pix2Act's.
        Protocol("webgum-56", webgum, 100, 30, "full"),
    )
