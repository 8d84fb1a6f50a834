"""What a session has been asked to do, and what it tells as it does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holotron.engine.grammar import GrammarState
    from holotron.engine.images import PreparedImage
    from holotron.engine.sampling import RowState
    from holotron.engine.sampling_params import SamplingParams
    from holotron.engine.session_state import SessionState
    from holotron.engine.stopping import StopChecker

PlacedImages = Sequence[tuple[int, "PreparedImage"]]  # each with the offset of its first token among those given


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of a token: under the model, under the distribution it was drawn from, and the runners-up."""

    model: float
    sampling: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class StartEvent:
    """The engine has taken a turn: its session's tokens with the prompt, and how many of them it has computed."""

    prompt_tokens: int
    cached_tokens: int


class TokenEvent(NamedTuple):
    """Tokens that a session produced in one step: one drawn, and those its grammar forces after it."""

    token_ids: tuple[int, ...]
    text: str
    logprobs: TokenLogprobs | None
    epoch: int

    @property
    def forced(self) -> list[bool]:
        """Of each token, whether the grammar left no choice about it, so that it was never drawn."""
        return [False, *[True] * (len(self.token_ids) - 1)]


@dataclass(frozen=True)
class FinishEvent:
    """The end of a request. reason: stop, eos, length, cancelled, computed or failed.

    seconds: how long it waited, computed its prompt, and generated.
    """

    reason: str
    text: str = ""
    stop: str | int | None = None
    error: Exception | None = None
    seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class PromptEvent:
    """The log-probabilities of a prompt's tokens, before its first answer; None where a token was not predicted."""

    logprobs: tuple[TokenLogprobs | None, ...]


Event = TokenEvent | FinishEvent
AnyEvent = StartEvent | PromptEvent | Event
_numbers = count()


@dataclass(eq=False)
class GenerationRequest:
    """One request to a session: compute what it was given, then generate if there are sampling parameters.

    Requests are served in the order of their numbers.
    """

    session: SessionState
    emit: Callable[[GenerationRequest, Event], None]
    sampling: SamplingParams | None = None
    grammar: GrammarState | None = None
    row: RowState | None = None
    checker: StopChecker | None = None
    number: int = field(default_factory=lambda: next(_numbers))
    seed: int = 0
    start: int = 0  # the session's tokens when this request's turn began
    prompt_end: int = 0
    begun: bool = False
    generated: int = 0
    alone: bool = False  # a step with it failed: it is tried again by itself
    cancelled: bool = False
    is_fork: bool = False  # computes what a session's forks share
    following: Callable[[], None] | None = None  # what the session was asked for meanwhile
    emit_prompt: Callable[[PromptEvent], None] | None = None
    prompt_logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)  # by position
    submitted_at: float = 0.0
    begun_at: float | None = None
    prompted_at: float | None = None  # when its prompt was computed

    def seconds(self, now: float) -> tuple[float, float, float]:
        """How long it has waited, computed its prompt, and generated."""
        begun = now if self.begun_at is None else self.begun_at
        prompted = now if self.prompted_at is None else self.prompted_at
        return begun - self.submitted_at, prompted - begun, now - prompted


@dataclass
class EngineCounters:
    """Work done so far. Redundancy is computed ÷ new: 1.00 when no token was computed twice."""

    steps: int = 0
    computed_tokens: int = 0
    appended_tokens: int = 0
    generated_tokens: int = 0
    forks: int = 0
    failures: int = 0

    @property
    def redundancy(self) -> float:
        return self.computed_tokens / max(1, self.appended_tokens + self.generated_tokens)
