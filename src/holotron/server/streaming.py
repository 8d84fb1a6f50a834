"""Answers that a client may walk away from: server-sent events, and plain answers that are awaited."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Result = TypeVar("Result")


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n\n"


DONE = b"data: [DONE]\n\n"


class EventStream(Response):
    """Sends what an iterator yields. A client that goes away is noticed at once, and the iterator is closed."""

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The iterator's own finally runs in the task that iterates, whatever ended it.
            for task in (sending, leaving):
                task.cancel()
            outcomes = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(outcomes[0], Exception) and not isinstance(outcomes[0], OSError):
            raise outcomes[0]

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self._chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            closing = getattr(self._chunks, "aclose", None)
            if closing is not None:
                await closing()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of some work, which is cancelled if the client goes away meanwhile."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
