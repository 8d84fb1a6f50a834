"""The engine's process on this machine, at the other end of a pair of sockets."""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import dataclass
from typing import Protocol, Self

from holotron.server.channel import Channel


class EngineProcess(Protocol):
    """One life of an engine's process. `host`: where other engines reach it."""

    channel: Channel
    host: str

    @property
    def pid(self) -> int | None: ...

    async def end(self, loading: bool) -> int | None:
        """See to its end, and return its code; loading: it reads nothing at the moment."""


@dataclass
class LocalProcess:
    """A child of this process."""

    channel: Channel
    process: asyncio.subprocess.Process
    host: str = "127.0.0.1"

    @classmethod
    async def start(cls, log_format: str) -> Self:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holotron.server.worker", str(theirs.fileno()), log_format),
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C in a terminal is for this process, which decides when that one ends
            )
        return cls(await Channel.open(ours), process)

    @property
    def pid(self) -> int | None:
        return self.process.pid

    async def end(self, loading: bool) -> int | None:
        """The process ends by itself once its socket is closed; if not, it is made to."""
        self.channel.close()
        if loading and self.process.returncode is None:
            self.process.kill()  # it would read nothing until it has its model
        if self.process.returncode is None:
            try:
                await asyncio.wait_for(asyncio.shield(self.process.wait()), 10)
            except (TimeoutError, asyncio.CancelledError):
                self.process.kill()
                await self.process.wait()
        return self.process.returncode
