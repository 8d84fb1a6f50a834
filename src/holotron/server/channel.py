"""Messages over a socket between two of our own processes, in frames that hold all that was said in one go."""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

# Both ends are ours and the socket has no name, so that pickle reads nothing but what we wrote.
_LENGTH = struct.Struct("<Q")
LARGE = 256 * 1024  # bytes of a frame that is unpacked beside the event loop


class Channel:
    """One end. What is sent within one turn of the event loop goes out as one frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._outgoing: list[Any] = []

    @classmethod
    async def open(cls, end: socket.socket) -> Channel:
        return cls(*await asyncio.open_connection(sock=end))

    def send(self, message: Any) -> None:
        """Send a message, without waiting for it to be out."""
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outgoing.append(message)

    async def frames(self) -> AsyncIterator[list[Any]]:
        """All that the other end says, until it is gone."""
        while True:
            try:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                body = await self._reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            yield pickle.loads(body) if len(body) < LARGE else await asyncio.to_thread(pickle.loads, body)

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if not self._outgoing or self._writer.is_closing():
            return
        body = pickle.dumps(self._outgoing, protocol=pickle.HIGHEST_PROTOCOL)
        self._outgoing = []
        self._writer.write(_LENGTH.pack(len(body)))
        self._writer.write(body)
