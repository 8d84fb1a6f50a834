"""A turn that is given to the engine in one go: a session is found for it, forked for its choices, and set to work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from holotron.engine.engine_loop import EngineLoop
from holotron.engine.errors import EngineError
from holotron.engine.grammar import GrammarState
from holotron.engine.prefix import continue_or_open
from holotron.engine.requests import AnyEvent, GenerationRequest, PlacedImages, StartEvent
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import SessionState

Emit = Callable[[int, AnyEvent], None]


@dataclass(eq=False)
class Submission:
    """A turn on its way to the engine's thread or under way there. Await it to know that the engine has taken it."""

    token_ids: Sequence[int]
    sampling: SamplingParams
    emit: Emit  # on the engine's thread, with the number of the choice
    session_id: str | None
    pool: str | None
    images: PlacedImages
    grammar: GrammarState | None
    choices: int
    adapter: str | None
    post: Callable[[Callable[[EngineLoop], None]], Future[None]]
    taken: Future[None] = field(init=False)
    _requests: list[GenerationRequest] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.taken = self.post(self._begin)

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self.taken).__await__()

    def cancel(self) -> None:
        """End every choice where it is, without waiting for it; a turn that has not begun ends as soon as it has."""
        self.post(self._end)

    def _end(self, loop: EngineLoop) -> None:
        for request in self._requests:
            loop.cancel(request)

    def _begin(self, loop: EngineLoop) -> None:
        """On the engine's thread: all choices, or an error and none."""
        session, known, cached = self._session(loop)
        rest = self.token_ids[known:]
        images = [(offset - known, prepared) for offset, prepared in self.images if offset >= known]
        before = len(session.tokens)
        sessions = [session]
        requests: list[GenerationRequest] = []
        try:
            if self.choices > 1:
                loop.check_length(before + len(rest), self.sampling.max_tokens)
                loop.append(session, rest, images)
                sessions += loop.fork(session, self.choices - 1)
                rest, images = (), []
            for choice, target in enumerate(sessions):
                requests.append(self._request(choice, target))
                loop.submit(requests[-1], rest, images)
        except Exception:
            for request in requests:
                request.emit = lambda *_: None
                loop.cancel(request)
            for target in sessions if self.session_id is None else sessions[1:]:
                loop.close(target)
            raise
        self._requests = requests
        self.emit(0, StartEvent(before + len(self.token_ids) - known, cached))

    def _session(self, loop: EngineLoop) -> tuple[SessionState, int, int]:
        """The session, how many of the tokens it has already, and how many of all need not be computed."""
        if self.session_id is not None:
            session = loop.find(self.session_id)
            adapters = loop.model.adapters
            if self.adapter is not None and (adapters is None or adapters.name(session.adapter) != self.adapter):
                raise EngineError(f"the session {session.id!r} was not opened with the adapter {self.adapter!r}")
            return session, 0, session.held
        if self.sampling.prompt_logprobs is not None:  # what was computed before has not been scored
            return loop.open(pool=self.pool, adapter=self.adapter), 0, 0
        keys = [(offset, prepared.key) for offset, prepared in self.images]
        session, known = continue_or_open(loop, self.token_ids, keys, self.pool, adapter=self.adapter)
        return session, known, min(known, session.held)

    def _request(self, choice: int, session: SessionState) -> GenerationRequest:
        sampling = self.sampling
        if choice and sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + choice)  # or every choice would say the same
        grammar = self.grammar.copy() if self.grammar is not None else None
        return GenerationRequest(
            session,
            lambda _, event: self.emit(choice, event),
            sampling,
            grammar,
            emit_prompt=lambda event: self.emit(choice, event),
        )
