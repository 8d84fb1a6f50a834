"""Tokens that were drawn and that the host has not read: the next step runs on them before it knows them."""

from __future__ import annotations

from collections.abc import Sequence

from holotron.engine.requests import GenerationRequest
from holotron.engine.sampling import PlainDraw
from holotron.engine.session_state import SessionState

UNREAD = 0  # stands for a token that was drawn and not read


class UnreadTokens:
    """One token each of these requests. Their sessions have a place for it, which is filled when it is read."""

    def __init__(self, requests: Sequence[GenerationRequest], draw: PlainDraw) -> None:
        self.requests = requests
        self.draw = draw
        self._rows = {request.session: row for row, request in enumerate(requests)}
        for request in requests:
            request.session.tokens.append(UNREAD)
            request.session.logits = None
            request.generated += 1

    def rows(self, sessions: Sequence[SessionState]) -> list[int]:
        """The row of each session's token, -1 where it is known."""
        return [self._rows.get(session, -1) for session in sessions]


def may_wait(request: GenerationRequest) -> bool:
    """Whether a step can run before this request's next token is read, because it is not likely to be its last.

    After an end of its text a session has computed one token more than it must: that is its last one, which it would
    compute with what comes next. A stop text may end it within what clients send again, so that it waits for none.
    """
    row, sampling = request.row, request.sampling
    if row is None or sampling is None or not row.is_plain or sampling.stop or sampling.stop_token_ids:
        return False
    return request.generated + 1 < sampling.max_tokens
