"""The sessions of an engine: opened, found by id, and given tokens."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from holotron.engine.config import EngineConfig
from holotron.engine.errors import EngineError, SessionBusy, SessionClosed, TooLong
from holotron.engine.images import ImageSpan, PreparedImage, check_places
from holotron.engine.requests import EngineCounters
from holotron.engine.session_state import OnUpdate, SessionState
from holotron.model.model import Model
from holotron.model.mrope import mrope_shift


class SessionRegistry:
    """What sessions there are, and what they hold before any of it is computed."""

    def __init__(self, model: Model, config: EngineConfig) -> None:
        self.model = model
        self.config = config
        self.sessions: dict[str, SessionState] = {}
        self.epoch = 0
        self.counters = EngineCounters()

    def open(
        self,
        session_id: str | None = None,
        *,
        on_update: OnUpdate = OnUpdate.KEEP,
        keep_images: int | None = None,
        pool: str | None = None,
        adapter: str | None = None,
    ) -> SessionState:
        """A new, empty session, which computes with the adapter of that name."""
        number = self.adapter_number(adapter)
        session_id = session_id or uuid4().hex
        if session_id in self.sessions:
            raise EngineError(f"a session {session_id!r} exists already")
        if keep_images is not None and (self.model.config.uses_rope or not self.model.config.count("M")):
            raise EngineError(
                f"keep_images drops keys and values that the state remembers; {self.model.config.name} has rotary "
                "positions or no state, so that it would lose them"
            )
        session = SessionState(session_id, on_update, keep_images, number, pool, epoch=self.epoch)
        self.sessions[session_id] = session
        return session

    def adapter_number(self, adapter: str | None) -> int:
        """The number of an adapter, 0 without one."""
        if self.model.adapters is None and adapter is not None:
            raise EngineError(f"there is no adapter {adapter!r}: {self.model.config.name} was loaded without any")
        return self.model.adapters.number(adapter) if self.model.adapters else 0

    def find(self, session_id: str) -> SessionState:
        if session_id not in self.sessions:
            raise SessionClosed(f"there is no session {session_id!r}: it was closed or never opened")
        return self.sessions[session_id]

    def append(
        self, session: SessionState, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]] = ()
    ) -> None:
        """Add tokens to the end; images come with the offset of their first token among these."""
        self.check_idle(session)
        vocabulary, vision = self.model.config.vocab_size, self.model.config.vision
        image_token = vision.image_token_id if vision else None  # it may lie beyond the vocabulary
        if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocabulary):
            for i, token in enumerate(token_ids):
                if not 0 <= token < vocabulary and token != image_token:
                    raise EngineError(f"token {i} is {token}; ids lie between 0 and {vocabulary - 1}")
        self.check_length(len(session.tokens) + len(token_ids))
        check_places(self.model.config, token_ids, images)
        start = len(session.tokens)
        session.tokens.extend(token_ids)
        for offset, prepared in images:
            span = ImageSpan(start + offset, prepared.image.tokens, prepared.key, prepared.again, prepared)
            if self.model.config.uses_mrope:
                span.grid = prepared.image.grids[0]
                span.shift = mrope_shift(span.grid) + (session.images[-1].shift if session.images else 0)
            session.images.append(span)
        if token_ids:
            session.logits = None
        self.counters.appended_tokens += len(token_ids)

    def check_idle(self, session: SessionState) -> None:
        """SessionClosed or SessionBusy where nothing can be asked of it now."""
        if session.closed:
            raise SessionClosed(f"the session {session.id!r} is closed")
        if session.request is not None:
            raise SessionBusy(f"the session {session.id!r} is at work; wait for it or cancel it")

    @property
    def max_length(self) -> int:
        """The tokens that a session can have at most."""
        if not self.model.config.count("*"):
            return self.config.max_context
        return min(self.config.max_context, (self.config.pages - 1) * self.config.page_size)

    def check_length(self, tokens: int, more: int = 0) -> None:
        """TooLong where a session cannot have so many tokens, and so many more that may be generated."""
        left = self.max_length - tokens
        if left > 0 and more > left:
            raise TooLong(
                f"max_tokens {more} after {tokens} tokens is more than the {self.max_length} that fit here; ask for at "
                f"most {left}"
            )
        if more > left:
            raise TooLong(
                f"{tokens + more} tokens are more than the {self.max_length} that fit here; shorten the session or "
                "give the engine more pages and a larger max_context"
            )
