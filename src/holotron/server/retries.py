"""Requests that are sent again: a client whose answer got lost is given that answer, and nothing is done twice.

Two requests are the same if they carry the same `Idempotency-Key`. OpenAI's clients do not send one, but count their
tries in `x-stainless-retry-count`: in a session, a later try is the same as the first if its body is.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holotron.server.auth import Keys
from holotron.server.errors import ApiError
from holotron.server.streaming import DONE, ClientGone, unless_gone

LONGEST_KEY = 255
KEPT_SECONDS = 600.0
KEPT_BYTES = 64 * 1024 * 1024  # of all answers
MOST_BYTES = 8 * 1024 * 1024  # of one answer


@dataclass(eq=False)
class Try:
    """The first of some equal requests, and its answer once it has one."""

    digest: bytes
    began: float = field(default_factory=time.monotonic)
    start: Message | None = None
    body: bytes = b""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class RetryMiddleware:
    """Keeps the answers of requests that say who they are, and gives them out again for a while."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys
        self._tries: OrderedDict[tuple[str, str], Try] = OrderedDict()
        self._bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" and scope["method"] == "POST" else {}
        key = headers.get(b"idempotency-key", b"").decode("latin-1")
        count = headers.get(b"x-stainless-retry-count")
        if not key and count is None:
            await self._app(scope, receive, send)
            return
        if len(key) > LONGEST_KEY:
            message = f"Idempotency-Key: {len(key)} letters are more than {LONGEST_KEY}"
            raise ApiError(400, message, param="Idempotency-Key", code="invalid_value")
        body = await _whole_body(receive)
        if body is None:
            return
        digest = sha256(scope["path"].encode() + b"\n" + body).digest()
        name = (self._keys.caller(Request(scope)).name, key or digest.hex())
        if not key and count == b"0":
            self._forget(name)  # whoever counts from nothing asks anew, if in the same words
        if key or "/sessions/" in scope["path"] or b'"session_id"' in body or b'"previous_response_id"' in body:
            with suppress(ClientGone):
                await self._once(name, digest, body, scope, receive, send)
        else:
            await self._app(scope, _again(body, receive), send)

    async def _once(
        self, name: tuple[str, str], digest: bytes, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        while (earlier := self._tries.get(name)) is not None:
            if earlier.digest != digest:
                message = "Idempotency-Key: it was used for another request; take a new one for each"
                raise ApiError(409, message, param="Idempotency-Key", code="idempotency_key_reused")
            if earlier.start is not None:
                await send(earlier.start)
                await send({"type": "http.response.body", "body": earlier.body})
                return
            await unless_gone(receive, earlier.over.wait())
        first = self._tries[name] = Try(digest)
        told: list[Message] = []

        async def noted(message: Message) -> None:
            told.append(message)
            await send(message)

        try:
            await self._app(scope, _again(body, receive), noted)
        finally:
            self._settle(name, first, told, scope["state"].get("turn"))

    def _settle(self, name: tuple[str, str], first: Try, told: list[Message], turn: Any) -> None:
        """Keep an answer that stands. Of one that was not told to its end, nothing is left to be repeated."""
        first.over.set()
        if self._tries.get(name) is not first:
            return
        body = b"".join(message.get("body", b"") for message in told[1:])
        if told and told[-1].get("more_body", False) and turn is not None and turn.complete:
            body = body.removesuffix(DONE) + DONE  # its client left between the last word and the end
        elif len(told) < 2 or told[-1].get("more_body", False):
            del self._tries[name]
            return
        if told[0]["status"] != 200 or len(body) > MOST_BYTES:
            del self._tries[name]
            return
        first.start = {**told[0], "headers": [*told[0].get("headers", []), (b"idempotent-replayed", b"true")]}
        first.body = body
        self._bytes += len(body)
        old = time.monotonic() - KEPT_SECONDS
        for known, kept in list(self._tries.items()):
            if self._bytes <= KEPT_BYTES and kept.began > old:
                break
            if kept.start is not None:
                self._forget(known)

    def _forget(self, name: tuple[str, str]) -> None:
        if (kept := self._tries.pop(name, None)) is not None:
            self._bytes -= len(kept.body)


async def _whole_body(receive: Receive) -> bytes | None:
    """None if the client left before it was there."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _again(body: bytes, receive: Receive) -> Receive:
    """What receives the body that was received, and then what comes after it."""
    waiting = [body]

    async def received() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return received
