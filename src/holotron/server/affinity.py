"""The name by which a client wants its requests to stay together, in the headers that routers know."""

from __future__ import annotations

from contextvars import ContextVar

from starlette.types import Scope

HEADERS = (b"x-session-id", b"x-smg-routing-key", b"x-dynamo-session-id", b"x-session-token")
LONGEST = 256

affinity: ContextVar[str | None] = ContextVar("affinity", default=None)  # of the request at hand


def note_affinity(scope: Scope) -> None:
    """Remember the request's name for as long as it is worked on."""
    headers = dict(scope["headers"])
    named = next((headers[name] for name in HEADERS if headers.get(name)), None)
    affinity.set(None if named is None else named[:LONGEST].decode("latin-1"))
