"""The only way out of a browser: a SOCKS proxy that lets through what the policy allows, to the address it checked.

Every connection a page can cause comes through here (redirects, workers, sockets, preconnects), with its host as a
name, because the browser resolves nothing itself. Names are resolved here, once, and the address that was checked is
the one connected to.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from holotron.env.safety.policy import DEFAULT_PORTS, SafetyPolicy, plain_host

Resolve = Callable[[str, int], Awaitable[list[str]]]
CONNECT_SECONDS = 10.0
CHUNK = 64 * 1024
MOST_PROBLEMS = 1000
SUCCEEDED, NOT_ALLOWED, UNREACHABLE, UNSUPPORTED = 0, 2, 4, 7


# The event loop's own threads are few, and one slow name server would keep every browser waiting.
RESOLVERS = ThreadPoolExecutor(64, thread_name_prefix="resolve")


async def system_resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as this machine sees them."""
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(RESOLVERS, ask)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class EgressProxy:
    """A proxy for one browser context. `on_refusal` hears of every (host:port, rule) that was turned away.

    It keeps why connections failed: the browser itself only learns that its proxy did.
    """

    def __init__(
        self, policy: SafetyPolicy, on_refusal: Callable[[str, str], None], resolve: Resolve = system_resolve
    ) -> None:
        self._policy = policy
        self._on_refusal = on_refusal
        self._resolve = resolve
        self._problems: dict[str, str] = {}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"socks5://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=CHUNK)

    async def close(self) -> None:
        """Stop listening and cut what is still connected."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def refusal(self, url: str) -> str | None:
        """The rule a page at this address would break, with its name resolved; None if it may be loaded."""
        if (rule := self._policy.refusal(url)) is not None:
            return rule
        parts = urlsplit(url)
        if parts.scheme not in DEFAULT_PORTS:
            return None
        host, port = plain_host(parts.hostname or ""), parts.port or DEFAULT_PORTS[parts.scheme]
        with suppress(OSError):  # a name that does not resolve is no matter of safety
            return (await asyncio.wait_for(self._addresses(host, port), CONNECT_SECONDS))[1]
        return None

    async def _addresses(self, host: str, port: int) -> tuple[list[str], str | None]:
        """Where to connect to, or nowhere and the rule."""
        if (rule := self._policy.refusal_of_place(host, port)) is not None:
            return [], rule
        addresses = await self._resolve(host, port)
        # One bad address spoils the name: which one would be used is up to its name server.
        rules = [self._policy.refusal_of_address(host, port, address) for address in addresses]
        rule = next((rule for rule in rules if rule), None)
        return ([], rule) if rule else (addresses, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # A reset, an early end or nonsense from the other side ends one connection and nothing else.
            with suppress(OSError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
                await self._connect(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = await _read_request(reader, writer)
        if place is None:
            return
        host, port = place
        self._problems.pop(f"{host}:{port}", None)
        try:
            addresses, rule = await asyncio.wait_for(self._addresses(host, port), CONNECT_SECONDS)
        except OSError as error:
            slow = isinstance(error, TimeoutError)
            what = f"no answer about the name {host}" if slow else f"there is no host named {host}"
            await self._fail(writer, host, port, what)
            return
        if rule is not None:
            self._on_refusal(f"{host}:{port}", rule)
            await _reply(writer, NOT_ALLOWED)
            return
        what = f"the name {host} has no address"
        for address in addresses:
            try:
                connecting = asyncio.open_connection(address, port, limit=CHUNK)
                there, back = await asyncio.wait_for(connecting, CONNECT_SECONDS)
            except OSError as error:
                refused = isinstance(error, ConnectionRefusedError)
                what = f"nothing listens at {host}:{port}" if refused else f"{host}:{port} cannot be reached"
                continue
            try:
                await _reply(writer, SUCCEEDED)
                await _join(reader, back, there, writer)
            finally:
                back.close()
            return
        await self._fail(writer, host, port, what)

    async def _fail(self, writer: asyncio.StreamWriter, host: str, port: int, what: str) -> None:
        if len(self._problems) < MOST_PROBLEMS:
            self._problems[f"{host}:{port}"] = what
        await _reply(writer, UNREACHABLE)

    def problem(self, url: str) -> str | None:
        """Why nothing came from this address, as far as its connection tells."""
        return self._problems.get(place_of(url))


def place_of(url: str) -> str:
    """The host:port that an address leads to."""
    parts = urlsplit(url)
    return f"{plain_host(parts.hostname or '')}:{parts.port or DEFAULT_PORTS.get(parts.scheme)}"


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int] | None:
    """The host and port that a SOCKS 5 client asks to be connected to (RFC 1928)."""
    version, methods = await reader.readexactly(2)
    await reader.readexactly(methods)
    if version != 5:
        return None
    writer.write(bytes([5, 0]))
    _, command, _, kind = await reader.readexactly(4)
    if kind == 1:
        host = str(ip_address(await reader.readexactly(4)))
    elif kind == 4:
        host = str(IPv6Address(await reader.readexactly(16)))
    else:
        length = (await reader.readexactly(1))[0]
        host = (await reader.readexactly(length)).decode("ascii")
    port = int.from_bytes(await reader.readexactly(2), "big")
    if command != 1 or kind not in (1, 3, 4):
        await _reply(writer, UNSUPPORTED)
        return None
    return plain_host(host), port


async def _reply(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes([5, code, 0, 1, 0, 0, 0, 0, 0, 0]))
    await writer.drain()


async def _join(
    here: asyncio.StreamReader, back: asyncio.StreamWriter, there: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry bytes both ways until one side is gone; browsers do not half-close."""
    ways = {asyncio.ensure_future(_carry(here, back)), asyncio.ensure_future(_carry(there, writer))}
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
