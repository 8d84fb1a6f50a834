"""What the HTTP process and the engine's process say to each other.

Requests carry an id; everything that is said about a request carries it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holotron.engine.options import EngineOptions
from holotron.engine.requests import TokenLogprobs
from holotron.engine.sampling import SamplingParams

# ---- to the engine ----


@dataclass(frozen=True)
class Start:
    """The first message. A request without a session leaves one behind, for the next request that begins like it."""

    engine: EngineOptions
    kept_seconds: float
    kept_most: int


@dataclass(frozen=True)
class Open:
    id: int
    on_update: str = "keep"
    keep_images: int | None = None


@dataclass(frozen=True)
class Generate:
    """A turn: of a session, or of whatever session of the pool has the longest beginning of these tokens."""

    id: int
    session: str | None
    pool: str | None
    token_ids: tuple[int, ...]
    images: tuple[tuple[int, bytes], ...]  # the offset of each image's first token, and its file
    sampling: SamplingParams
    choices: int = 1


@dataclass(frozen=True)
class Cancel:
    id: int


@dataclass(frozen=True)
class Fork:
    id: int
    session: str
    count: int


@dataclass(frozen=True)
class Rollback:
    id: int
    session: str
    turn: int
    keep_prompt: bool


@dataclass(frozen=True)
class Park:
    id: int
    session: str


@dataclass(frozen=True)
class Bring:
    """Have a parked session on the device again, ahead of its next turn."""

    id: int
    session: str


@dataclass(frozen=True)
class Close:
    id: int
    session: str


@dataclass(frozen=True)
class Inspect:
    id: int
    session: str


@dataclass(frozen=True)
class Pause:
    """keep: turns stay where they are. wait: those that run are finished first. abort: they are cancelled."""

    id: int
    mode: str = "keep"


@dataclass(frozen=True)
class Resume:
    id: int


@dataclass(frozen=True)
class Sleep:
    id: int
    weights: bool = False


@dataclass(frozen=True)
class Wake:
    id: int


@dataclass(frozen=True)
class UpdateWeights:
    id: int
    path: str


# ---- from the engine: these, and EngineStats every second, so that whoever asks for them never waits for the GPU ----


@dataclass(frozen=True)
class Ready:
    """The engine has its model; the largest number of tokens a session can have, and where it runs."""

    max_context: int
    device: str


@dataclass(frozen=True)
class CallResult:
    id: int
    value: Any = None


@dataclass(frozen=True)
class Failed:
    """A request that was refused or broke. kind: invalid, unknown, busy, too_long, image, grammar, failed, internal."""

    id: int
    kind: str
    message: str
    index: int | None = None  # of the image, if it is about one


@dataclass(frozen=True)
class Started:
    id: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Tokens:
    """Tokens of one step, all drawn or forced under the weights of one epoch."""

    id: int
    choice: int
    token_ids: tuple[int, ...]
    forced: list[bool]
    text: str
    logprobs: TokenLogprobs | None
    epoch: int


@dataclass(frozen=True)
class Finished:
    id: int
    choice: int
    reason: str
    text: str = ""
    stop: str | int | None = None
    error: str | None = None
