"""Sessions as their owners know them: what was said in each, whose it is, and how long it is kept."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from holotron.model.text.conversation import Conversation, ConversationWriter
from holotron.server.auth import Caller
from holotron.server.errors import ApiError
from holotron.server.settings import ServerSettings

MOMENT = 1.0
ENDING_SECONDS = 30.0


@dataclass(eq=False)
class OpenSession:
    """One session. `conversation` is None once tokens were appended that no message stands for."""

    id: str
    owner: str
    ttl: float
    conversation: Conversation | None
    adapter: str | None = None
    created: float = field(default_factory=time.time)
    last_used: float = field(default_factory=time.monotonic)
    turns: int = 0
    tokens: int = 0
    busy: bool = False
    ending: bool = False  # its turn was left, and is being taken back
    is_response: bool = False  # opened for a chain of responses: nobody asked for it
    head: Any = None  # what the prompt of a chain of responses begins with
    not_responses: set[int] = field(default_factory=set)  # turns whose responses were deleted, or another chain's
    _idle: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def expires_in(self) -> float:
        return max(0.0, self.last_used + self.ttl - time.monotonic())

    async def rest(self) -> None:
        """Wait a moment for a turn that is about to end, and longer for one whose client left and is back already."""
        if self.busy:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), ENDING_SECONDS if self.ending else MOMENT)

    @contextmanager
    def working(self) -> Iterator[None]:
        """One thing at a time."""
        if self.busy:
            raise ApiError(409, f"the session {self.id!r} is at work; wait for it", code="session_busy")
        self.busy = True
        self._idle.clear()
        try:
            yield
        finally:
            self.busy = self.ending = False
            self._idle.set()
            self.last_used = time.monotonic()

    def expect(self, turns: int | None) -> None:
        """An error if it has another number of turns than its owner thinks: one came through that was given up."""
        if turns is not None and turns != self.turns:
            message = f"expected_turns: the session {self.id!r} has {self.turns} turns, not {turns}"
            raise ApiError(409, message, param="expected_turns", code="turn_conflict")

    def rolled_back(self, turn: int, keep_prompt: bool) -> None:
        """Forget the turn of that number and all after it, as the engine has."""
        self.turns = turn % self.turns
        self.not_responses = {number for number in self.not_responses if number <= self.turns}
        if self.conversation is not None:
            self.conversation.rollback(self.turns, keep_prompt)

    @property
    def about(self) -> dict[str, Any]:
        """What a journal keeps of it besides its turns."""
        return {"owner": self.owner, "ttl": self.ttl, "adapter": self.adapter, "created": self.created}

    def fork(self, id_: str) -> OpenSession:
        conversation = self.conversation.fork() if self.conversation is not None else None
        fork = OpenSession(id_, self.owner, self.ttl, conversation, self.adapter, turns=self.turns, tokens=self.tokens)
        fork.is_response, fork.head = self.is_response, self.head
        return fork


class KeptSession(Protocol):
    """A session in a journal. Its notes are of its turns, and `asked` of a question that waits for its answer."""

    id: str
    about: dict[str, Any] | None
    tokens: array[int]
    notes: list[dict[str, Any] | None]
    asked: dict[str, Any] | None


def restored(kept: KeptSession, writer: ConversationWriter) -> OpenSession:
    """A session as it was when an earlier process ended."""
    assert kept.about is not None
    said = [*kept.notes, *([] if kept.asked is None else [kept.asked])]
    conversation: Conversation | None = writer.start()
    for note in said:
        if conversation is None or note is None or note["asked"] is None:
            conversation = None  # tokens that no message stands for
        else:
            conversation.take_up(note["asked"])
            conversation.answered(*note["answer"])
    if conversation is not None and kept.asked is not None:
        conversation.rollback(-1, keep_prompt=True)
    turns, tokens = len(kept.notes), len(kept.tokens)
    return OpenSession(id=kept.id, conversation=conversation, turns=turns, tokens=tokens, **kept.about)


class SessionTable:
    """All open sessions. To other callers than its owner a session does not exist."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._sessions: dict[str, OpenSession] = {}
        self.on_add: Callable[[OpenSession], None] = lambda _: None

    def __len__(self) -> int:
        return len(self._sessions)

    def check_room(self, caller: Caller, more: int = 1) -> None:
        owned, most = len(self.owned_by(caller)), self._settings.max_sessions_per_key
        if owned + more > most:
            message = f"you have {owned} sessions open, and {most} are the most; delete some"
            raise ApiError(429, message, code="too_many_sessions", retry=10)

    def oldest_response(self, caller: Caller) -> OpenSession | None:
        """Of a caller who has as many sessions as may be, the chain of responses that was not used for longest."""
        owned = self.owned_by(caller)
        chains = [session for session in owned if session.is_response and not session.busy]
        is_full = len(owned) >= self._settings.max_sessions_per_key
        return min(chains, key=lambda session: session.last_used, default=None) if is_full else None

    def add(self, session: OpenSession) -> None:
        self._sessions[session.id] = session
        self.on_add(session)

    def find(self, id_: str, caller: Caller) -> OpenSession:
        session = self._sessions.get(id_)
        if session is None or session.owner != caller.name:
            message = f"there is no session {id_[:128]!r}: it was deleted, has expired, or never existed"
            raise ApiError(404, message, param="session_id", code="session_not_found")
        return session

    def owned_by(self, caller: Caller) -> list[OpenSession]:
        return [session for session in self._sessions.values() if session.owner == caller.name]

    def remove(self, id_: str) -> None:
        self._sessions.pop(id_, None)

    def expired(self) -> list[OpenSession]:
        return [s for s in self._sessions.values() if not s.busy and s.expires_in == 0]

    def clear(self) -> None:
        """The engine is gone, and all sessions with it."""
        self._sessions.clear()
