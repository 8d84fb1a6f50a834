"""What the HTTP process and the engine's process say to each other.

Requests carry an id; everything that is said about a request carries it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holotron.engine.options import EngineOptions
from holotron.engine.requests import FinishEvent, PromptEvent, StartEvent, TokenEvent
from holotron.engine.sampling_params import SamplingParams

# ---- to the engine ----


@dataclass(frozen=True)
class Start:
    """The first message. A request without a session leaves one behind, for the next request that begins like it."""

    engine: EngineOptions
    kept_seconds: float
    kept_most: int
    transfer_seconds: float = 300.0  # that a trainer may take for the next tensor
    host: str = "127.0.0.1"  # where other engines reach this one


@dataclass(frozen=True)
class EngineCall:
    """Anything but a turn: the name of a method of the worker's, or of the engine's sessions by id."""

    id: int
    method: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Generate:
    """A turn: of a session, or of the session of the pool that has the longest beginning of these tokens."""

    token_ids: tuple[int, ...]
    sampling: SamplingParams
    images: tuple[tuple[int, bytes], ...] = ()  # the offset of each image's first token, and its file
    session: str | None = None
    pool: str | None = None
    choices: int = 1
    adapter: str | None = None  # of a turn without a session; a session has its own
    affinity: str | None = None  # turns of one name go to one replica
    note: dict[str, Any] | None = None  # for the front's journal; the engine does not get it
    id: int = 0  # given when it is sent


@dataclass(frozen=True)
class Cancel:
    id: int


# ---- from the engine: these, and EngineStats every second, so that reading the figures never waits for the GPU ----


@dataclass(frozen=True)
class Ready:
    """The engine has its model; the largest number of tokens a session can have."""

    max_context: int


@dataclass(frozen=True)
class CannotStart:
    """The engine cannot have its model; its process ends after this."""

    reason: str


@dataclass(frozen=True)
class CallResult:
    id: int
    value: Any = None


@dataclass(frozen=True)
class Failed:
    """A request that was refused or broke.

    kind: invalid, unknown, busy, full, too_long, image, grammar, aborted, failed, internal.
    """

    id: int
    kind: str
    message: str
    index: int | None = None  # of the image, if it is about one


@dataclass(frozen=True)
class TurnEvent:
    """A turn has begun (that is the first choice's event), or one of its choices has gone on or ended."""

    id: int
    choice: int
    event: StartEvent | PromptEvent | TokenEvent | FinishEvent
