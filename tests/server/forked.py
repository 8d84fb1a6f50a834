"""The engine's process, forked from one that has imported what it needs: each by itself takes seconds for that."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import socket
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess

from holotron.server import worker
from holotron.server.channel import Channel
from holotron.server.log_lines import write_logs


def work(end: socket.socket) -> None:
    """What the program of the worker does, with the socket that it was given."""
    write_logs("json", logging.WARNING, process="engine")
    with suppress(StopAsyncIteration):
        asyncio.run(worker.serve(end))


@dataclass
class ForkedProcess:
    """A child that lives until its socket is closed. It is not started again: `live.serving` says how to have that."""

    channel: Channel
    process: ForkServerProcess
    host: str = "127.0.0.1"

    @classmethod
    async def start(cls) -> ForkedProcess:
        ours, theirs = socket.socketpair()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([worker.__name__, __name__])
        process = context.Process(target=work, args=(theirs,), daemon=True)
        with theirs:
            await asyncio.to_thread(process.start)
        return cls(await Channel.open(ours), process)

    @property
    def pid(self) -> int | None:
        return self.process.pid

    async def end(self, loading: bool) -> int | None:
        self.channel.close()
        if loading:
            self.process.kill()
        await asyncio.to_thread(self.process.join, 10)
        if self.process.is_alive():
            self.process.kill()
            await asyncio.to_thread(self.process.join)
        return self.process.exitcode
