"""A session as its caller sees it: append, generate, fork, roll back, park, close."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holotron.engine.info import SessionInfo, describe
from holotron.engine.requests import Event, PlacedImages, TokenEvent, TokenLogprobs
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import SessionState
from holotron.engine.stream import Stream

if TYPE_CHECKING:
    from holotron.engine.engine import Engine


@dataclass
class Generation:
    """What a session generated in one turn; per token its log-probabilities, whether it was forced, and the epoch."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    forced: list[bool] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    finish_reason: str = ""
    stop: str | int | None = None

    def add(self, event: Event) -> None:
        self.text += event.text
        if isinstance(event, TokenEvent):
            self.token_ids.extend(event.token_ids)
            self.logprobs.extend([event.logprobs, *[None] * (len(event.token_ids) - 1)])
            self.forced.extend(event.forced)
            self.epochs.extend([event.epoch] * len(event.token_ids))
        else:
            self.finish_reason, self.stop = event.reason, event.stop

    @property
    def ended_with(self) -> int | None:
        """The token that ended it, None where something else did."""
        ended = self.finish_reason in ("eos", "stop") and self.token_ids and not isinstance(self.stop, str)
        return self.token_ids[-1] if ended else None


class Session:
    """One agent's running session. It does one thing at a time; asked for another meanwhile, it is SessionBusy."""

    def __init__(self, engine: Engine, state: SessionState) -> None:
        self._engine = engine
        self._state = state

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def info(self) -> SessionInfo:
        return self._engine._call(lambda: describe(self._engine.loop, self._state))

    @property
    def length(self) -> int:
        """How many tokens it has, without waiting for the engine's thread; it grows while a turn runs."""
        return len(self._state.tokens)

    @property
    def token_ids(self) -> list[int]:
        return self._engine._call(lambda: list(self._state.tokens))

    def append(self, token_ids: Sequence[int], images: PlacedImages = ()) -> None:
        """Add tokens, and images with the offset of their first token among these. Nothing is computed yet."""
        self._engine._call(lambda: self._engine.loop.append(self._state, token_ids, images))

    async def generate(
        self, token_ids: Sequence[int] = (), sampling: SamplingParams | None = None, *, images: PlacedImages = ()
    ) -> Generation:
        """One turn: append, then generate."""
        generation = Generation()
        # The engine's thread adds the tokens itself: the caller need not wake up for each of them.
        sampling = sampling or SamplingParams()
        async for event in Stream(self._engine, self._state, sampling, token_ids, images, add=generation.add):
            generation.add(event)
        return generation

    def stream(
        self, token_ids: Sequence[int] = (), sampling: SamplingParams | None = None, *, images: PlacedImages = ()
    ) -> Stream:
        """One turn, as it happens. Leaving the loop early, or being cancelled, ends the generation."""
        return Stream(self._engine, self._state, sampling or SamplingParams(), token_ids, images)

    async def compute(self) -> None:
        """Compute what was appended, so that a later turn or fork starts at once."""
        async for _ in Stream(self._engine, self._state, None):
            pass

    def fork(self, count: int) -> list[Session]:
        """So many sessions that go on from here, sharing what can be shared."""
        sessions = self._engine._call(lambda: self._engine.loop.fork(self._state, count))
        return [Session(self._engine, session) for session in sessions]

    def rollback(self, turn: int, *, keep_prompt: bool = False) -> None:
        """Remove that turn and all after it; with keep_prompt only its answer, to generate it anew."""
        self._engine._call(lambda: self._engine.loop.rollback(self._state, turn, keep_prompt=keep_prompt))

    def park(self) -> None:
        """Evict the memory from the device; the next turn brings it back."""
        self._engine._call(lambda: self._engine.loop.park(self._state))

    def resume(self) -> bool:
        """Bring the memory back ahead of the next turn."""
        return self._engine._call(lambda: self._engine.loop.resume(self._state))

    def close(self) -> None:
        """Close the session and free its memory."""
        self.closing().result()

    def closing(self) -> Future[None]:
        """`close`, for callers that must not wait."""
        return self._engine._post(lambda: self._engine.loop.close(self._state))
