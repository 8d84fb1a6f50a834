"""A stream that its client leaves is closed, whenever that happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holotron.server.streaming import EventStream


@pytest.mark.parametrize("blocked", ["http.response.start", "http.response.body"])
def test_a_client_that_leaves_ends_the_stream(blocked: str) -> None:
    ended: list[str] = []
    sent: list[str] = []

    async def chunks() -> AsyncGenerator[bytes, None]:
        try:
            yield b"data: 1\n\n"
        finally:
            ended.append("iterator")

    async def run() -> None:
        waiting = asyncio.Event()

        async def send(message: Any) -> None:
            sent.append(message["type"])
            if message["type"] == blocked:
                waiting.set()
                await asyncio.Event().wait()

        async def receive() -> Any:
            await waiting.wait()
            return {"type": "http.disconnect"}

        await asyncio.wait_for(EventStream(chunks(), lambda: ended.append("closed"))({}, receive, send), 10)

    asyncio.run(run())
    assert sent[-1] == blocked
    # An iterator that was never asked for anything has no end of its own.
    assert ended == (["closed"] if blocked == "http.response.start" else ["iterator", "closed"])
