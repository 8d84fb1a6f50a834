"""Bodies of requests, read without holding up other requests: small ones at once, others in a process beside."""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from holotron.server.body_reader import Problems, read, receive, send
from holotron.server.errors import ApiError, as_api_error, field_error
from holotron.server.unknown_fields import ignore_unknown

SMALL = 128 * 1024  # read at once: a few milliseconds, whatever is in it
MOST_AT_ONCE = 16 * 1024 * 1024  # the same for data URLs, which are only copied
MOST_URLS = 64
MOST_WAITING = 32
MAX_OBJECTS = 500_000


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
        self._thread = ThreadPoolExecutor(1, "holotron-body")  # sends and receives without the event loop
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._waiting = 0

    async def read(self, kind: Any, content: bytes) -> tuple[Any, Problems]:
        """A request of that type, or what is wrong with it."""
        if is_quick(content):
            return read(kind, content)
        if self._waiting >= MOST_WAITING:
            message = f"{self._waiting} long bodies wait to be read, as many as this server takes"
            raise ApiError(429, message, code="busy", retry=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, kind, content)
        finally:
            self._waiting -= 1

    async def aclose(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._end)

    def _ask(self, kind: Any, content: bytes) -> tuple[Any, Problems]:
        try:
            if self._socket is None:
                self._socket, theirs = socket.socketpair()
                with theirs:
                    words = [sys.executable, "-m", "holotron.server.body_reader", str(theirs.fileno())]
                    self._process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
            send(self._socket, pickle.dumps(kind), content)
            (answer,) = receive(self._socket, 1)
        except OSError as error:
            problem = f"body: the process that read it ended with code {self._end()}; send less at once"
            raise ApiError(413, problem, param="body", code="too_large") from error
        result: tuple[Any, Problems] = pickle.loads(answer)
        return result

    def _end(self) -> int | None:
        if self._socket is None or self._process is None:
            return None
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # also ends what a thread waits for
        self._socket.close()
        self._socket = None
        self._process.kill()
        return self._process.wait()


class BodyRequest(Request):
    """A request whose JSON is what its route wants, already validated."""

    kind: Any
    is_json = False
    _whole: bytes | None = None

    async def body(self) -> bytes:
        """All of it. What cannot be taken is not kept, but received to its end: its client hears why."""
        if self._whole is not None:
            return self._whole
        pieces, objects = list[bytes](), 0
        async for piece in self.stream():
            if objects <= MAX_OBJECTS:
                pieces.append(piece)
                objects += piece.count(b"{") if b"{" in piece else 0  # quicker for screenshots, which have none
            else:
                pieces.clear()
        if objects > MAX_OBJECTS:
            raise ApiError(400, f"body: it has more than {MAX_OBJECTS:,} objects", param="body", code="too_large")
        self._whole = b"".join(pieces)
        return self._whole

    async def json(self) -> Any:
        self.is_json = True
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
            try:
                return await handle(reading)
            except RequestValidationError as error:
                if reading.is_json or not await reading.body():
                    raise
                # Pages of others may send any body as a form or a text without asking: such are never read.
                raise field_error("body", "it must be JSON, with the header Content-Type: application/json") from error

        return handle_body
