"""Which steps of which episodes are learned, as a recipe says it. Imports without pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ACTORS = ("policy", "teacher")


@dataclass(frozen=True)
class Selection:
    """Which episodes count, which of their steps are learned, and how often each is drawn.

    suites, tasks: names; empty takes all. actors: whose actions are learned; what a disturbance did never is.
    successes: whole episodes must have succeeded. min_reward: and have at least this reward.
    corrections: where the policy did other than the teacher says, an example ends with the teacher's action, also
    in episodes that failed. suite_weights, task_weights: how often an example is drawn compared with others; 1 where
    nothing is said, 0 for never; both multiply. limit: at most so many episodes, drawn by `seed`; 0 takes all.
    """

    suites: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    actors: tuple[str, ...] = ACTORS
    successes: bool = True
    min_reward: float | None = None
    corrections: bool = True
    suite_weights: Mapping[str, float] = field(default_factory=dict)
    task_weights: Mapping[str, float] = field(default_factory=dict)
    limit: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.actors) - set(ACTORS)):
            raise ValueError(f"actors has {unknown[0]!r}; known are {', '.join(ACTORS)}")
        if not self.actors and not self.corrections:
            raise ValueError("nothing would be learned: actors is empty and corrections is false")
        if self.limit < 0:
            raise ValueError(f"limit is {self.limit}; it must be 1 or more, or 0 for all")
        for name, weight in (*self.suite_weights.items(), *self.task_weights.items()):
            if not weight >= 0:
                raise ValueError(f"the weight of {name} is {weight}; it must be 0 or more")

    def weight_of(self, suite: str, task: str) -> float:
        """How often examples of this task are drawn, compared with 1."""
        return self.suite_weights.get(suite, 1.0) * self.task_weights.get(task, 1.0)
