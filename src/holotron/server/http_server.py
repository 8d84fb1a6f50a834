"""uvicorn with an end to everything: connections on which nothing comes, and turns that outlast the grace period."""

from __future__ import annotations

import asyncio
import math
import socket

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from holotron.server.errors import STOPPING
from holotron.server.settings import ServerSettings

HEADER_SECONDS = 30.0  # until the first request of a connection, or the rest of one that has begun, must be there
KEEP_ALIVE_SECONDS = 30
FLUSH_SECONDS = 2  # for errors to reach clients once the grace period is over
# A peer that is gone without a word is asked after a minute, and given up after another.
SOCKET_OPTIONS = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}


class BoundedConnection(H11Protocol):
    """Closes a connection whose request does not come, however slowly it does not."""

    _giving_up: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        end = transport.get_extra_info("socket")
        if end is not None and end.family in (socket.AF_INET, socket.AF_INET6):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in SOCKET_OPTIONS.items():
                if hasattr(socket, name):  # not on every system
                    end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()  # a request has come; its body has a limit of its own
        elif self._giving_up is None:
            self._giving_up = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None


class HttpServer(uvicorn.Server):
    """Told to stop, it lets turns finish for the grace period, and then ends each of them with an error."""

    def __init__(self, app: FastAPI, settings: ServerSettings) -> None:
        self._app = app
        self._grace = settings.grace_seconds
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                http=BoundedConnection,
                log_config=None,
                access_log=False,  # the application writes its own, with more in it
                timeout_graceful_shutdown=math.ceil(settings.grace_seconds) + FLUSH_SECONDS,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                server_header=False,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = getattr(self._app.state, "server", None)
        if state is not None:
            asyncio.get_running_loop().call_later(self._grace, state.client.abandon, STOPPING)
        await super().shutdown(sockets)
