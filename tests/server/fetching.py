"""A server on this machine that answers as it is told, and a fetcher that asks it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import pytest

from holotron.server.fetch import Fetcher, FetchPolicy, FetchRefused

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]

BODY = b"\x89PNG and so on"
PUBLIC = "93.184.215.14"
CONTEXT = ssl.create_default_context()


def answer(body: bytes = BODY, status: str = "200 OK", length: int | None = None, **headers: str) -> Answer:
    fields = {"Content_Type": "image/png", "Content_Length": str(len(body) if length is None else length), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items() if value)

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)

    return write


def get(
    write: Answer,
    url: str = "http://127.0.0.1:{port}/image.png",
    hosts: Sequence[str] = ("127.0.0.1:{port}",),
    addresses: Sequence[str] = ("127.0.0.1",),
    max_bytes: int = 1000,
    seconds: float = 5.0,
    allow_private: bool = True,
    times: int = 1,
) -> tuple[list[bytes], list[str], list[str]]:
    """What was fetched, the requests that a local server saw, and the names that were resolved."""
    requests: list[str] = []
    resolved: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await write(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def resolve(host: str, port: int) -> Sequence[str]:
        resolved.append(host)
        # A second look-up would get the address that rebinding is after.
        return addresses if resolved.count(host) == 1 or times > 1 else ["127.0.0.1"]

    async def run() -> list[bytes]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        policy = FetchPolicy(tuple(host.format(port=port) for host in hosts), max_bytes, seconds, allow_private)
        try:
            async with server, aclosing(Fetcher(policy, resolve, CONTEXT)) as fetcher:
                return [await fetcher.fetch(url.format(port=port)) for _ in range(times)]
        finally:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

    return asyncio.run(run()), requests, resolved


def refuse(url: str, *hosts: str, addresses: Sequence[str] = (PUBLIC,), allow_private: bool = False) -> str:
    with pytest.raises(FetchRefused) as caught:
        get(answer(), url, hosts, addresses, allow_private=allow_private)
    return str(caught.value)
