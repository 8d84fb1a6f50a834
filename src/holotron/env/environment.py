"""What an agent acts on: a task is begun, looked at, acted on, and judged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from holotron.actions.action import Action
from holotron.env.safety.confirm import Question
from holotron.env.task import Task


@dataclass(frozen=True)
class Tab:
    """One open tab."""

    index: int
    url: str
    title: str
    current: bool

    def __str__(self) -> str:
        return f"{'*' if self.current else ''}{self.index}: {self.title or self.url}"


@dataclass(frozen=True)
class Dialog:
    """An alert, confirm, prompt or beforeunload that was answered for the agent."""

    kind: str
    message: str
    answer: str


@dataclass(frozen=True)
class Download:
    """A file that a page offered; `path` is empty where downloads are refused."""

    url: str
    name: str
    path: str


@dataclass(frozen=True)
class Refusal:
    """Something the safety policy stopped: what kind of thing, where it wanted to go, and the rule."""

    kind: str
    target: str
    rule: str


@dataclass(frozen=True)
class Observation:
    """A screenshot as a PNG and what is known about it.

    notices: in words, what happened since the observation before that the picture does not show. The fields below it
    are a browser's: the same as facts. errors: navigations that failed, pages that crashed or hung. settled: False when
    the page was still busy at the end of the wait.
    """

    image: bytes
    width: int
    height: int
    url: str = ""
    title: str = ""
    tabs: tuple[Tab, ...] = ()
    notices: tuple[str, ...] = ()
    dialogs: tuple[Dialog, ...] = ()
    downloads: tuple[Download, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    errors: tuple[str, ...] = ()
    load_state: str = "complete"
    settled: bool = True


@dataclass(frozen=True)
class TaskStatus:
    """Where the task stands by the environment's own count, if it has one."""

    done: bool = False
    reward: float | None = None
    success: bool | None = None


class Environment(Protocol):
    """One task after another, each begun by `reset`.

    `act` raises ActionFailed or Refused for what the policy must be told, InfrastructureError for what says nothing
    about the policy; after that one `reset` may be tried again.
    """

    @property
    def instruction(self) -> str:
        """What the task says, known after `reset`."""
        ...

    async def reset(self, task: Task, seed: int) -> Observation: ...

    async def observe(self) -> Observation: ...

    async def act(self, action: Action) -> None: ...

    async def status(self) -> TaskStatus: ...


@runtime_checkable
class Questioning(Protocol):
    """An environment that asks a person before actions that its rules name."""

    def answer_questions_by(self, ask: Callable[[Question], Awaitable[bool]]) -> None: ...
