"""A model of one process, asked by others on any machine: browsers of a cluster play with the engine of a trainer.

Conversations are those of worker processes on one machine (agent/hosted_model.py); the socket is one that machines see,
and both of its ends show first that they know a key.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from holotron.agent.chat import ChatModel, ModelUnavailable
from holotron.agent.hosted_model import READ_AHEAD, HostedChat, HostedModel, ModelHost
from holotron.scale.handshake import NONCE, connect, prove

log = logging.getLogger(__name__)


class SharedModelHost(ModelHost):
    """Serves a model at an address of this machine to those who were given the handle."""

    def __init__(self, model: ChatModel, address: str) -> None:
        super().__init__(model)
        self._key = secrets.token_bytes(NONCE)
        self._listener = socket.create_server((address, 0), backlog=1024)  # all hosts come at once

    def shared(self) -> SharedModel:
        """What a process on another machine is given: it can be pickled."""
        host, port = self._listener.getsockname()[:2]
        return SharedModel(host, port, self._key, self._model.name)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        with self._listener:
            self._listener.setblocking(False)
            accepting = asyncio.create_task(self._accept())
            yield
            accepting.cancel()

    async def _accept(self) -> None:
        while True:
            end, _ = await self._loop.sock_accept(self._listener)
            task = asyncio.create_task(self._prove(end))
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

    async def _prove(self, end: socket.socket) -> None:
        try:
            await asyncio.to_thread(prove, end, self._key, front=False)
        except (OSError, ValueError) as error:
            log.warning("a connection was refused: %s", error)
            end.close()
            return
        await self.welcome(*await asyncio.open_connection(sock=end, limit=READ_AHEAD))


@dataclass
class SharedModel:
    """A model in a process of another machine, for one event loop. It connects when it is first asked.

    A conversation whose connection is lost ends with ModelUnavailable; the next one connects again.
    """

    host: str
    port: int
    key: bytes = field(repr=False)
    name: str
    _connecting: asyncio.Task[HostedModel] | None = field(default=None, init=False, repr=False)

    async def open(self) -> HostedChat:
        return await (await self._connected()).open()

    async def open_seeded(self, seed: int) -> HostedChat:
        return await (await self._connected()).open_seeded(seed)

    async def aclose(self) -> None:
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
            if self._connecting.exception() is None:
                await self._connecting.result().close()

    async def _connected(self) -> HostedModel:
        known = self._connecting
        if known is None or (known.done() and (known.exception() is not None or known.result().is_lost)):
            self._connecting = asyncio.create_task(self._connect())
        assert self._connecting is not None
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> HostedModel:
        try:
            end = await asyncio.to_thread(connect, self.host, self.port, self.key)
        except (OSError, ValueError) as error:
            raise ModelUnavailable(f"{self.name} is not served at {self.host}:{self.port}: {error}") from error
        return HostedModel(self.name, *await asyncio.open_connection(sock=end, limit=READ_AHEAD), decode=False)
