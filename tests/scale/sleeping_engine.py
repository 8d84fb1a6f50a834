"""An engine's process that sleeps instead of computing, one turn after another: what is left is the server's work."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress
from typing import Any
from uuid import uuid4

from holotron.engine.info import EngineStats, SessionInfo
from holotron.engine.requests import FinishEvent, StartEvent, TokenEvent
from holotron.engine.session_state import Residency
from holotron.server import messages as m
from holotron.server.channel import Channel

SLOTS = 4096.0


async def serve(end: socket.socket, seconds: float) -> None:
    channel = await Channel.open(end)
    turns: asyncio.Queue[m.Generate] = asyncio.Queue()

    async def work() -> None:
        while True:
            turn = await turns.get()
            await asyncio.sleep(seconds)
            channel.send(m.TurnEvent(turn.id, 0, StartEvent(len(turn.token_ids), 0)))
            channel.send(m.TurnEvent(turn.id, 0, TokenEvent((65,), "A", None, 0)))
            channel.send(m.TurnEvent(turn.id, 0, FinishEvent("length")))

    def answer(call: m.EngineCall) -> Any:
        if call.method == "open":
            return uuid4().hex
        return SessionInfo(str(call.args), 0, 0, 0, Residency.GPU, (), 0, False) if call.method == "describe" else None

    working = asyncio.create_task(work())
    async for frame in channel.frames():
        for message in frame:
            if isinstance(message, m.Start):
                channel.send(m.Ready(4096))
                channel.send(EngineStats({"slots": SLOTS}, {}))
            elif isinstance(message, m.Generate):
                turns.put_nowait(message)
            elif isinstance(message, m.EngineCall):
                channel.send(m.CallResult(message.id, answer(message)))
    working.cancel()


if __name__ == "__main__":
    with suppress(asyncio.CancelledError):
        asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), float(sys.argv[2])))
