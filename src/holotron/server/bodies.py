"""Bodies of requests, read without holding up other requests: small ones at once, others in a process beside."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from holotron.server.body_reader import Problems, read
from holotron.server.channel import Channel
from holotron.server.errors import ApiError, as_api_error
from holotron.server.unknown_fields import ignore_unknown

SMALL = 128 * 1024  # read at once: a few milliseconds, whatever is in it
MOST_AT_ONCE = 16 * 1024 * 1024  # the same for data URLs, which are only copied
MOST_URLS = 64


def is_quick(content: bytes) -> bool:
    """Whether a body is small, apart from the data URLs in it."""
    if len(content) <= SMALL:
        return True
    if len(content) > MOST_AT_ONCE:
        return False
    rest, end = len(content), 0
    for _ in range(MOST_URLS):
        start = content.find(b'"data:', end)
        end = content.find(b'"', start + 6)
        comma = content.find(b",", start, end)
        if start < 0 or end < 0 or content.find(b",", comma + 1, end) >= 0 or content.find(b"\\", start, end) >= 0:
            break
        rest -= end - start
    return rest <= SMALL


class BodyReader:
    """Reads bodies one after another in a process that is started when the first one needs it."""

    def __init__(self) -> None:
        self._channel: Channel | None = None
        self._waiting: deque[asyncio.Future[tuple[Any, Problems]]] = deque()
        self._running: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def read(self, kind: Any, content: bytes) -> tuple[Any, Problems]:
        """A request of that type, or what is wrong with it."""
        if is_quick(content):
            return read(kind, content)
        async with self._starting:
            if self._channel is None:
                ours, theirs = socket.socketpair()
                self._channel = await Channel.open(ours)
                self._running = asyncio.create_task(self._run(self._channel, theirs))
            answer: asyncio.Future[tuple[Any, Problems]] = asyncio.get_running_loop().create_future()
            self._waiting.append(answer)
            self._channel.send((kind, content))
        return await answer

    async def aclose(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self, channel: Channel, theirs: socket.socket) -> None:
        """One life of the process."""
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "holotron.server.body_reader", str(theirs.fileno()), pass_fds=[theirs.fileno()]
            )
        try:
            async for frame in channel.frames():
                for answer in frame:
                    if not (asked := self._waiting.popleft()).done():  # its client may be gone
                        asked.set_result(answer)
        finally:
            channel.close()
            self._channel = None
            with suppress(ProcessLookupError):
                process.kill()
            problem = f"body: the process that read it ended with code {await process.wait()}; send less at once"
            for asked in self._waiting:
                if not asked.done():
                    asked.set_exception(ApiError(413, problem, param="body", code="too_large"))
            self._waiting.clear()


class BodyRequest(Request):
    """A request whose JSON is what its route wants, already validated."""

    kind: Any

    async def json(self) -> Any:
        server = self.app.state.server
        value, problems = await server.bodies.read(self.kind, await self.body())
        if problems:
            raise as_api_error(RequestValidationError(problems))
        if ignored := ignore_unknown(value, server.settings.strict):
            self.state.ignored = ignored
        return value


class BodyRoute(APIRoute):
    """A route whose body is read so: FastAPI takes a value that is one of its model as it is."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        kind = self.body_field.field_info.annotation

        async def handle_body(request: Request) -> Response:
            reading = BodyRequest(request.scope, request.receive)
            reading.kind = kind
            return await handle(reading)

        return handle_body
