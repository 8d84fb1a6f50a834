"""Replicas in threads of this process: real engines at the other end of real sockets, there at once."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holotron.scale.disk_journal import DiskJournal
from holotron.scale.serve import several
from holotron.server.app import ReplicaSet
from holotron.server.channel import Channel
from holotron.server.engine_client import EngineClient
from holotron.server.worker import serve


@dataclass
class ThreadProcess:
    """An engine that dies when its socket is shut."""

    channel: Channel
    end_of_it: socket.socket
    host: str = "127.0.0.1"
    pid: int | None = None

    @classmethod
    async def start(cls) -> ThreadProcess:
        ours, theirs = socket.socketpair()

        def run() -> None:
            with suppress(StopAsyncIteration):
                asyncio.run(serve(theirs))

        threading.Thread(target=run, daemon=True).start()
        return cls(await Channel.open(ours), theirs)

    def kill(self) -> None:
        """Between two words, as kill -9 does."""
        self.end_of_it.shutdown(socket.SHUT_RDWR)

    async def end(self, loading: bool) -> int | None:
        self.channel.close()
        return 0


def in_threads(count: int, journal: Path | None = None) -> ReplicaSet:
    def new_client(name, start, on_loss):
        return EngineClient(start, on_loss, launch=ThreadProcess.start)

    return several(count, new_client, None if journal is None else DiskJournal(journal, "tiny"))
