"""A teacher in the loop: it plays by itself, or it watches a policy and goes on where that went astray (DAgger)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from holotron.actions.action import Action, to_dict

POINTS = ("x", "y", "to_x", "to_y")
# Given the last action and the teacher's next: a clumsy action to take instead, or None for most steps.
Disturb = Callable[[Action | None, Action], Awaitable[Action | None]]


class TeacherFailed(Exception):
    """The teacher has no action for this state: it cannot read it, or nothing it knows leads to success any more."""


class Teacher(Protocol):
    """Knows what to do in any state of a task, whoever brought it about."""

    async def ask(self) -> Action | None:
        """What to do now; None where no way to success is known."""
        ...


@dataclass(frozen=True)
class Supervision:
    """How a teacher takes part in an episode.

    deviations: how often the policy may go astray before the teacher plays to the end; without a policy it plays from
    the beginning. near: a point this near to the teacher's, in thousandths, is the same. disturb: what comes between
    when the teacher plays.
    """

    teacher: Teacher
    deviations: int = 0
    near: int = 0
    disturb: Disturb | None = None

    async def ask(self) -> Action:
        wanted = await self.teacher.ask()
        if wanted is None:
            raise TeacherFailed("the teacher knows no way to success from here")
        return wanted


def same(action: Action, other: Action, near: int) -> bool:
    """Whether two actions do the same, up to a near miss of a point."""
    first, second = to_dict(action), to_dict(other)
    if first.keys() != second.keys():
        return False
    return all(
        abs(value - second[key]) <= near if key in POINTS else value == second[key] for key, value in first.items()
    )
