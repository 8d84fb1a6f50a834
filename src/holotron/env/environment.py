"""What an agent acts on, reduced to what the loop needs: look, act, and where things stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holotron.actions.action import Action


@dataclass(frozen=True)
class Observation:
    """A screenshot and what is known about it. `notices` tell what happened that the picture does not show."""

    image: bytes
    width: int
    height: int
    url: str = ""
    title: str = ""
    tabs: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskStatus:
    """Where the task stands by the environment's own count, if it has one."""

    done: bool = False
    reward: float | None = None
    success: bool | None = None


class Environment(Protocol):
    """One environment with one task in it.

    `act` raises ActionFailed or Refused for what the policy must be told, InfrastructureError for what is nobody's
    doing.
    """

    async def observe(self) -> Observation: ...

    async def act(self, action: Action) -> None: ...

    async def status(self) -> TaskStatus: ...
