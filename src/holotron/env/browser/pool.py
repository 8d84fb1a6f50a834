"""Chromium processes and the isolated contexts they hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Self

from playwright.async_api import Browser, BrowserContext, Error, Playwright, async_playwright

from holotron.env.browser.clipboard import Clipboard
from holotron.env.browser.launch import LaunchOptions, launch
from holotron.env.errors import BrowserCrashed, BrowserMissing, InfrastructureError

log = logging.getLogger(__name__)

# Contexts that are being opened at once in one process; more only wait for each other inside the browser.
OPENING_AT_ONCE = 4
CLOSE_SECONDS = 10.0
ANSWER_SECONDS = 5.0
DRIVER_GONE = "Connection closed while reading from the driver"


def _tells_more(record: logging.LogRecord) -> bool:
    """Whether asyncio's log says what is not known yet.

    A driver that ended is noticed by all who ask it something; Playwright also keeps the error where nothing reads it.
    """
    return DRIVER_GONE not in str(record.exc_info and record.exc_info[1])


class Browsers:
    """Some Chromium processes that share the contexts among them.

    Processes start when they are first needed. One that died is replaced when the next context is asked for; the
    contexts it held are lost. Use it as an async context manager, or call `close`.
    """

    def __init__(self, processes: int = 1, options: LaunchOptions | None = None) -> None:
        if processes < 1:
            raise ValueError(f"{processes} browser processes are too few; at least 1 is needed")
        self._processes = [_Process(options or LaunchOptions()) for _ in range(processes)]
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open_context(self, **options: Any) -> Lease:
        """A new isolated context, in the process that holds the fewest. Options are Playwright's `new_context`'s."""
        if self._closed:
            raise InfrastructureError("these browsers are closed")
        return await min(self._processes, key=lambda process: process.load).open_context(options)

    @property
    def contexts(self) -> list[int]:
        """How many contexts each process holds."""
        return [process.load for process in self._processes]

    async def close(self) -> None:
        """End every process. Finishes even when the task that calls it is cancelled meanwhile."""
        self._closed = True
        await finish(asyncio.gather(*(process.stop() for process in self._processes)))


async def finish(work: Awaitable[Any]) -> None:
    """Await something that ends even when the task that waits for it is cancelled."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await running
        raise


class Lease:
    """One context of a process, until it is closed or its process dies."""

    def __init__(self, process: _Process, running: _Running, context: BrowserContext) -> None:
        self.context = context
        self.clipboard = running.clipboard
        self._ended = running.ended
        self._process = process
        self._closed = False

    @property
    def lost(self) -> bool:
        """Whether the process is gone."""
        return self._ended.is_set()

    async def alive(self) -> bool:
        """Whether the process answers; if not, it counts as gone from now on."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.context.cookies("http://localhost")
        except (Error, TimeoutError):
            self.give_up()
            return False
        return True

    def give_up(self) -> None:
        """The process counts as gone from now on, even if it still answers; the next context gets another."""
        self._ended.set()

    async def close(self) -> None:
        """Close the context. Never raises: what cannot be closed is gone already."""
        if self._closed:
            return
        self._closed = True
        self._process.load -= 1
        if not self.lost:
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self.context.close()


class _Running:
    """A Chromium that was started: its handle, its clipboard, and the event of its end."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.clipboard = Clipboard(browser)
        self.ended = asyncio.Event()
        browser.on("disconnected", lambda _: self.ended.set())


class _Process:
    """One Chromium with a Playwright driver of its own, so that no driver slows down or ends the others."""

    def __init__(self, options: LaunchOptions) -> None:
        self.load = 0
        self._options = options
        self._starting = asyncio.Lock()
        self._opening = asyncio.Semaphore(OPENING_AT_ONCE)
        self._playwright: Playwright | None = None
        self._running: _Running | None = None
        self._stopped = False

    async def open_context(self, options: dict[str, Any]) -> Lease:
        self.load += 1  # before the first await, so that others see it when they choose
        try:
            try:
                return await self._open_context(options)
            except BrowserCrashed:
                return await self._open_context(options)  # in the process that replaces it
        except BaseException:
            self.load -= 1
            raise

    async def _open_context(self, options: dict[str, Any]) -> Lease:
        running = await self._run()
        try:
            async with self._opening:
                return Lease(self, running, await running.browser.new_context(**options))
        except Error as error:
            running.ended.set()  # a browser that opens nothing is as good as dead
            raise BrowserCrashed(f"the browser ended while a context was opened: {error.message}") from error

    async def stop(self) -> None:
        self._stopped = True
        async with self._starting:
            await self._end()

    async def _run(self) -> _Running:
        """The browser, started if there is none or it died."""
        async with self._starting:
            if self._stopped:
                raise InfrastructureError("these browsers are closed")
            if self._running is not None and self._running.ended.is_set():
                log.warning("a browser process died; starting another")
                await self._end()
            if self._running is None:
                starting = asyncio.ensure_future(self._start())
                try:
                    self._running = _Running(await asyncio.shield(starting))
                except BaseException:
                    # A start that is broken off half-way leaves processes behind: see it through, then end it.
                    with suppress(Exception):
                        self._running = _Running(await starting)
                    await self._end()
                    raise
            return self._running

    async def _start(self) -> Browser:
        logging.getLogger("asyncio").addFilter(_tells_more)
        try:
            self._playwright = await async_playwright().start()
        except Exception as error:  # its driver is a program of its own, which a bare system may lack a library for
            raise BrowserMissing(
                f"Playwright does not start ({error}); on Debian: apt-get install libatomic1"
            ) from error
        return await launch(self._playwright, self._options)

    async def _end(self) -> None:
        running, self._running = self._running, None
        playwright, self._playwright = self._playwright, None
        # The driver ends its Chromium when it is stopped; a browser that does not close in time is ended that way.
        for ending in (running.browser.close() if running else None, playwright.stop() if playwright else None):
            if ending is not None:
                # A driver that died raises errors of any kind, and is what we want.
                with suppress(Exception):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await ending
