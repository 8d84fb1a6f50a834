"""A connection of our own to a page's debugger, for local pages, of which something is asked at every step.

The browser's driver is a program that reads and writes each question and answer once more. What this takes instead is
a port that the browser listens on. It refuses websockets of pages, but other users of the machine could open files of
ours in that browser: it is opened where HOLOTRON_BROWSER_PORT=1 says that there are none, and for pages of ours alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from base64 import b64encode
from os import urandom
from pathlib import Path
from typing import Any, Protocol

from playwright.async_api import Browser, Error, Page

log = logging.getLogger(__name__)

VARIABLE = "HOLOTRON_BROWSER_PORT"
OPEN_PORT = "--remote-debugging-port=0"  # with which a browser is started
PORT_FILE = "DevToolsActivePort"
PORT_SECONDS, LOOK_SECONDS = 10.0, 0.01
GONE = "the page's connection has been closed"
TEXT = 0x81  # how a frame begins that is a whole message


def port_arguments() -> tuple[str, ...]:
    """With which browsers for local pages are started."""
    return (OPEN_PORT,) if os.environ.get(VARIABLE) == "1" else ()


class PageSession(Protocol):
    """A way to ask a page: the driver's `CDPSession`, or a wire."""

    async def send(self, method: str, params: dict[str, Any] | None = None) -> Any: ...


async def port_of(browser: Browser) -> int | None:
    """Where a browser listens that was started with OPEN_PORT; None where it may not, or does not say so in time."""
    try:
        async with asyncio.timeout(PORT_SECONDS):
            session = await browser.new_browser_cdp_session()
            started = (await session.send("SystemInfo.getInfo"))["commandLine"]
            await session.detach()
            told = Path(started.partition("--user-data-dir=")[2].partition(" --")[0]) / PORT_FILE
            while not (told.exists() and "\n" in (text := told.read_text())):  # it begins to listen beside all else
                await asyncio.sleep(LOOK_SECONDS)
    except (TimeoutError, Error):
        log.warning("the browser opens no port: its pages are asked through the driver, which costs more")
        return None
    return int(text.split()[0])


class Wire(asyncio.Protocol):
    """A websocket that matches answers to questions; the rest of what a page tells is not listened to."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._transport: Any = None
        self._received = bytearray()
        self._unsent = b""
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._last = 0

    @classmethod
    async def open(cls, port: int, page: Page) -> Wire:
        session = await page.context.new_cdp_session(page)
        target = (await session.send("Target.getTargetInfo"))["targetInfo"]["targetId"]
        await session.detach()
        try:
            transport, wire = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        except OSError as error:
            raise Error(f"the browser's port does not answer: {error}") from error
        key = b64encode(urandom(16)).decode()
        transport.write(
            f"GET /devtools/page/{target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        await wire._opened
        return wire

    async def send(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The answer; `Error` where there is none. What is asked in one go arrives in that order."""
        if self._transport is None or self._transport.is_closing():
            raise Error(GONE)
        self._last += 1
        number, text = self._last, json.dumps({"id": self._last, "method": method, "params": params or {}}).encode()
        if not self._unsent:  # each write wakes the browser, so all of one go is one
            self._loop.call_soon(self._flush)
        # What a client sends has to be masked, here with zeros, which change nothing.
        self._unsent += _head(len(text)) + bytes(4) + text
        answer = self._asked[number] = self._loop.create_future()
        try:
            return await answer
        finally:
            self._asked.pop(number, None)

    def _flush(self) -> None:
        self._transport.write(self._unsent)
        self._unsent = b""

    def _hear(self, message: bytes) -> None:
        said = json.loads(message)
        answer = self._asked.get(said.get("id"))
        if answer is None or answer.done():
            return
        if "error" in said:
            answer.set_exception(Error(said["error"]["message"]))
        else:
            answer.set_result(said["result"])

    def _frame(self) -> bytes | None:
        """The next one if all of it is there."""
        got = self._received
        start = {126: 4, 127: 10}.get(got[1], 2) if len(got) > 1 else 2
        if len(got) < start:
            return None
        end = start + (got[1] if start == 2 else int.from_bytes(got[2:start], "big"))
        if len(got) < end:
            return None
        frame = bytes(got[start:end]) if got[0] == TEXT else b"{}"
        del got[:end]
        return frame

    # ---- what the loop calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._opened.done():
            head, end, rest = self._received.partition(b"\r\n\r\n")
            if not end:
                return
            if b" 101 " not in head:
                self._opened.set_exception(Error(head.partition(b"\r\n")[0].decode(errors="replace")))
                return
            self._opened.set_result(None)
            self._received = rest
        while (frame := self._frame()) is not None:
            self._hear(frame)

    def connection_lost(self, why: Exception | None) -> None:
        for waiting in (self._opened, *self._asked.values()):
            if not waiting.done():
                waiting.set_exception(Error(GONE))


def _head(size: int) -> bytes:
    if size < 126:
        return bytes((TEXT, 0x80 | size))
    if size < 1 << 16:
        return bytes((TEXT, 0x80 | 126)) + size.to_bytes(2, "big")
    return bytes((TEXT, 0x80 | 127)) + size.to_bytes(8, "big")
