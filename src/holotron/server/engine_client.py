"""The engine as the HTTP process sees it: a process of its own, started, spoken to, and started again if it dies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from holotron.engine.info import EngineStats
from holotron.engine.sampling import SamplingParams
from holotron.server import messages as m
from holotron.server.channel import Channel

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
LONG_ENOUGH = 60.0  # an engine that lived this long did not die of its beginning
CANNOT_START = 3  # the exit code of an engine whose model cannot be loaded


class EngineDown(Exception):
    """There is no engine at the moment; it is being started again."""


class EngineRefused(Exception):
    """The engine refused one request; see `Failed` for the kinds."""

    def __init__(self, kind: str, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = index


Happening = m.Started | m.Tokens | m.Finished


@dataclass
class PendingGeneration:
    """The events of one request, until every choice is finished. Leave it with `cancel` if nobody wants the rest."""

    id: int
    choices: int
    _cancel: Callable[[int], None]
    events: asyncio.Queue[Happening | Exception] = field(default_factory=asyncio.Queue)
    open_choices: int = 0  # whose end the reader has not seen
    unfinished: int = 0  # whose end the engine has not told

    def __post_init__(self) -> None:
        self.open_choices = self.unfinished = self.choices

    async def started(self) -> m.Started:
        """The engine has taken the request; EngineRefused if it has not."""
        event = await self._next()
        assert isinstance(event, m.Started)
        return event

    async def __aiter__(self) -> AsyncIterator[m.Tokens | m.Finished]:
        while self.open_choices:
            event = await self._next()
            assert not isinstance(event, m.Started)
            if isinstance(event, m.Finished):
                self.open_choices -= 1
            yield event

    async def _next(self) -> Happening:
        event = await self.events.get()
        if isinstance(event, Exception):
            self.open_choices = 0
            raise event
        return event

    def cancel(self) -> None:
        if self.open_choices:
            self.open_choices = 0
            self._cancel(self.id)


class EngineClient:
    """Starts the engine's process and keeps one running."""

    def __init__(self, start: m.Start, on_loss: Callable[[], None] = lambda: None) -> None:
        self.stats = EngineStats()
        self.ready: m.Ready | None = None
        self.restarts = 0
        self.versions: dict[int, str] = {}
        self._start = start
        self._on_loss = on_loss
        self._ids = itertools.count(1)
        self._channel: Channel | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._generations: dict[int, PendingGeneration] = {}
        self._supervisor: asyncio.Task[None] | None = None
        self._looked_after: set[asyncio.Task[None]] = set()
        self._is_ready = asyncio.Event()
        self._hopeless: str | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def version_of(self, epoch: int) -> str:
        """What the weights of that epoch are called: what the one who brought them said, or their number."""
        return self.versions.get(epoch, str(epoch))

    async def start(self) -> None:
        """Start, and wait until the model is loaded; EngineDown if it cannot be."""
        self._supervisor = asyncio.create_task(self._supervise())
        waiting = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait({waiting, self._supervisor}, return_when=asyncio.FIRST_COMPLETED)
        if not self._is_ready.is_set():
            waiting.cancel()
            raise EngineDown(self._hopeless or "the engine could not be started")

    async def close(self) -> None:
        """End the engine's process."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)

    # ---- requests ----

    async def call(self, make: Callable[[int], Any]) -> Any:
        """Send the message that `make` makes with a fresh id, and wait for its answer."""
        channel = self._connected()
        message = make(next(self._ids))
        future = self._calls[message.id] = asyncio.get_running_loop().create_future()
        channel.send(message)
        try:
            return await future
        finally:
            self._calls.pop(message.id, None)

    def generate(
        self,
        token_ids: tuple[int, ...],
        images: tuple[tuple[int, bytes], ...],
        sampling: SamplingParams,
        *,
        session: str | None = None,
        pool: str | None = None,
        choices: int = 1,
    ) -> PendingGeneration:
        """Begin a turn."""
        channel = self._connected()
        generation = PendingGeneration(next(self._ids), choices, self._cancel)
        self._generations[generation.id] = generation
        channel.send(m.Generate(generation.id, session, pool, token_ids, images, sampling, choices))
        return generation

    def look_after(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done that nobody waits for."""
        task = asyncio.create_task(work)
        self._looked_after.add(task)
        task.add_done_callback(self._looked_after.discard)

    def _cancel(self, id_: int) -> None:
        if self._generations.pop(id_, None) is not None and self._channel is not None:
            self._channel.send(m.Cancel(id_))

    def check(self) -> None:
        """EngineDown if there is no engine to talk to."""
        self._connected()

    def _connected(self) -> Channel:
        if self._channel is None or not self._is_ready.is_set():
            raise EngineDown("the engine is being started; try again in a moment")
        return self._channel

    # ---- the process ----

    async def _supervise(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            code = await self._live()
            if code == CANNOT_START and self.restarts == 0:
                self._hopeless = "the model could not be loaded"
                return
            self.restarts += 1
            pause = FIRST_PAUSE if time.monotonic() - began > LONG_ENOUGH else min(LONGEST_PAUSE, 2 * pause)
            log.error("the engine's process ended with code %s; starting it again in %.1f s", code, pause)
            await asyncio.sleep(pause)

    async def _live(self) -> int | None:
        """One life of the engine's process."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "holotron.server.worker", str(theirs.fileno()), pass_fds=[theirs.fileno()]
            )
        channel = await Channel.open(ours)
        try:
            channel.send(self._start)
            async for frame in channel.frames():
                for message in frame:
                    self._take(message, channel)
        finally:
            self._lose()
            channel.close()
            await _end(process)
        return process.returncode

    def _take(self, message: Any, channel: Channel) -> None:
        match message:
            case m.Tokens() | m.Started() | m.Finished():
                if generation := self._generations.get(message.id):
                    generation.events.put_nowait(message)
                    if isinstance(message, m.Finished):
                        generation.unfinished -= 1
                        if not generation.unfinished:
                            del self._generations[message.id]
            case m.CallResult():
                self._resolve(message.id, lambda future: future.set_result(message.value))
            case m.Failed():
                error = EngineRefused(message.kind, message.message, message.index)
                if generation := self._generations.pop(message.id, None):
                    generation.events.put_nowait(error)
                self._resolve(message.id, lambda future: future.set_exception(error))
            case EngineStats():
                self.stats = message
            case m.Ready():
                self.ready = message
                self._channel = channel
                self._is_ready.set()

    def _resolve(self, id_: int, act: Callable[[asyncio.Future[Any]], None]) -> None:
        future = self._calls.pop(id_, None)
        if future is not None and not future.done():
            act(future)

    def _lose(self) -> None:
        """Whoever waits for an answer gets an error instead."""
        self._is_ready.clear()
        self._channel = None
        self.stats = EngineStats()
        self.versions = {}
        error = EngineDown("the engine ended while it worked on this; it is being started again")
        for generation in self._generations.values():
            generation.events.put_nowait(error)
        for future in self._calls.values():
            if not future.done():
                future.set_exception(error)
        self._generations.clear()
        self._calls.clear()
        self._on_loss()


async def _end(process: asyncio.subprocess.Process) -> None:
    """The process ends by itself once its socket is closed; if not, it is made to."""
    if process.returncode is None:
        try:
            await asyncio.wait_for(asyncio.shield(process.wait()), 10)
        except (TimeoutError, asyncio.CancelledError):
            process.kill()
            await process.wait()
