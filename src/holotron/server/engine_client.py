"""The engine as the HTTP process sees it: a process of its own, started, spoken to, and started again if it dies."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from holotron.engine.info import EngineStats
from holotron.engine.requests import Event, FinishEvent, PromptEvent, StartEvent
from holotron.server import messages as m
from holotron.server.channel import Channel
from holotron.server.engine_service import EngineService
from holotron.server.local_process import EngineProcess, LocalProcess
from holotron.server.weight_history import WeightsLost

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
LONG_ENOUGH = 60.0  # an engine that lived this long did not die of its beginning


class EngineDown(Exception):
    """There is no engine at the moment; it is being started again."""


class EngineRefused(Exception):
    """The engine refused one request; see `Failed` for the kinds."""

    def __init__(self, kind: str, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = index


@dataclass
class PendingGeneration:
    """The events of one request, until every choice is finished. Its owner must `cancel` it, however it ends."""

    id: int
    choices: int
    _replies: asyncio.Queue[Any]
    _leave: Callable[[int, bool], None]
    _abort: Callable[[int], None]
    _unread: int = field(init=False)  # choices whose end was not read

    def __post_init__(self) -> None:
        self._unread = self.choices

    async def started(self) -> StartEvent:
        """The engine has taken the request; EngineRefused if it has not."""
        event = (await _next(self._replies)).event
        assert isinstance(event, StartEvent)
        return event

    async def __aiter__(self) -> AsyncIterator[tuple[int, Event | PromptEvent]]:
        """Choices by their number, and what each of them says."""
        while self._unread:
            message = await _next(self._replies)
            self._unread -= isinstance(message.event, FinishEvent)
            yield message.choice, message.event

    def cancel(self) -> None:
        """Stop what still runs of it, and read no more of it."""
        self._leave(self.id, self._unread > 0)

    def abort(self) -> None:
        """Have the engine end what still runs of it; its events say so."""
        self._abort(self.id)


class EngineClient(EngineService):
    """Has an engine's process started, and keeps one running."""

    def __init__(
        self,
        start: m.Start,
        on_loss: Callable[[], None] = lambda: None,
        log_format: str = "json",
        launch: Callable[[], Awaitable[EngineProcess]] | None = None,
    ) -> None:
        super().__init__(start)
        self.ready = None
        self.restarts = 0
        self.weights_lost = None
        self._stats = EngineStats()
        self._beginning: asyncio.Task[None] | None = None
        self._on_loss = on_loss
        self._launch = launch or partial(LocalProcess.start, log_format)
        self._abandoned: Exception | None = None  # what all requests get from now on
        self._refusal: str | None = None
        self._ids = itertools.count(1)
        self._channel: Channel | None = None
        self._process: EngineProcess | None = None
        self._replies: dict[int, asyncio.Queue[Any]] = {}  # to requests by their id
        self._supervisor: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()

    @property
    def stats(self) -> EngineStats:
        return self._stats

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def host(self) -> str:
        """Where other engines reach this one."""
        return self._process.host if self._process else ""

    @property
    def is_connected(self) -> bool:
        """Whether it takes requests, with the weights that it should have."""
        return self._is_ready.is_set() and self._abandoned is None and self.weights_lost is None

    def start(
        self, on_failure: Callable[[str], None] = lambda _: None, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        self._on_failure, self._on_ready = on_failure, on_ready
        self._supervisor = asyncio.create_task(self._supervise())

    def share(self, service: EngineService) -> None:
        """Serve the weights and adapters of a service that has several engines."""
        self.weights, self.adapters, self.versions = service.weights, service.adapters, service.versions
        self.adapter_epochs = service.adapter_epochs
        self._updating = service._updating

    async def close(self) -> None:
        """End the engine's process."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)

    def restart(self) -> None:
        """End the engine's process, for another in its place that has the weights and adapters which it should have."""
        self._is_ready.clear()
        if self._channel is not None:
            self._channel.close()

    # ---- requests ----

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        id_ = next(self._ids)
        replies = self._send(m.EngineCall(id_, method, args, options))
        try:
            return (await _next(replies)).value
        finally:
            self._replies.pop(id_, None)

    def usable(self) -> None:
        self.connected()
        if self.weights_lost is not None:
            raise EngineDown(f"the engine was started again without its weights: {self.weights_lost}; send them again")

    def generate(self, turn: m.Generate) -> PendingGeneration:
        self.usable()
        turn = replace(turn, id=next(self._ids), note=None)
        return PendingGeneration(turn.id, turn.choices, self._send(turn), self._leave, self._cancel)

    def _send(self, message: m.EngineCall | m.Generate, channel: Channel | None = None) -> asyncio.Queue[Any]:
        """Where the replies to a message will be."""
        channel = channel or self.connected()
        replies = self._replies[message.id] = asyncio.Queue()
        channel.send(message)
        return replies

    def _leave(self, id_: int, running: bool) -> None:
        """Read no more of a request's replies; the engine is told if it still works on it."""
        if self._replies.pop(id_, None) is not None and running and self._channel is not None:
            self._channel.send(m.Cancel(id_))

    def _cancel(self, id_: int) -> None:
        if id_ in self._replies and self._channel is not None:
            self._channel.send(m.Cancel(id_))

    def connected(self) -> Channel:
        """EngineDown if there is no engine to talk to."""
        if self._abandoned is not None:
            raise self._abandoned
        if self._channel is None or not self._is_ready.is_set():
            raise EngineDown("the engine is being started; try again in a moment")
        return self._channel

    def abandon(self, error: Exception) -> None:
        self._abandoned = error
        self._fail_all(error)

    def _fail_all(self, error: Exception) -> None:
        for replies in self._replies.values():
            replies.put_nowait(error)

    # ---- the process ----

    async def _supervise(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            code = await self._live()
            if self.ready is None:  # what failed once at the beginning will fail again
                killed = ", killed as when memory runs out" if code == -signal.SIGKILL else ""
                self._on_failure(self._refusal or f"the engine's process ended with code {code} as it started{killed}")
                return
            self.restarts += 1
            pause = FIRST_PAUSE if time.monotonic() - began > LONG_ENOUGH else min(LONGEST_PAUSE, 2 * pause)
            log.error("the engine's process ended with code %s; starting it again in %.1f s", code, pause)
            await asyncio.sleep(pause)

    async def _live(self) -> int | None:
        """One life of the engine's process."""
        try:
            self._process = process = await self._launch()
        except Exception as error:  # as many kinds as there are ways to launch one
            self._refusal = f"the engine's process could not be started: {error}"
            return None
        channel = process.channel
        try:
            channel.send(replace(self._start, host=process.host))
            async for frame in channel.frames():
                for message in frame:
                    self._take(message, channel)
        finally:
            loading = not self._is_ready.is_set()
            self._lose()
            code = await process.end(loading)
        return code

    def _take(self, message: Any, channel: Channel) -> None:
        match message:
            case m.TurnEvent() | m.CallResult() | m.Failed():
                if (replies := self._replies.get(message.id)) is not None:
                    replies.put_nowait(message)
            case EngineStats():
                self._stats = message
            case m.CannotStart():
                self._refusal = f"the engine cannot start: {message.reason}"
                if self.ready is not None:
                    log.error(self._refusal)
            case m.Ready():
                self._beginning = asyncio.create_task(self._begin(message, channel))

    async def _begin(self, ready: m.Ready, channel: Channel) -> None:
        """Take an engine into use that has loaded its model; one that replaces another gets its weights first."""
        async with self._updating:
            newest = max(filter(None, self.adapter_epochs.values()), default=0)
            await self._bring_adapters(channel, newest)
            try:
                for update in self.weights.updates():
                    options = {"epoch": max(newest, update.epoch)}
                    message = m.EngineCall(next(self._ids), "update_weights", (update.path,), options)
                    await _next(self._send(message, channel))
            except (EngineRefused, WeightsLost) as error:
                self.weights_lost = str(error)
                log.error("the engine's weights of version %s are lost: %s", self.version_of(self._epoch), error)
            self.ready = ready
            self._channel = channel
            self._is_ready.set()
            self._on_ready()

    async def _bring_adapters(self, channel: Channel, newest: int) -> None:
        """Have a new engine, which was started with those of the beginning, serve the adapters of now in this epoch."""
        begun = dict(self._start.engine.adapters)
        for name, folder in (dict.fromkeys(begun) | self.adapters).items():
            if begun.get(name) == folder:
                continue
            place = (name, folder, newest if self.adapter_epochs.get(name) else None)
            method, args = ("unload_adapter", place[:1]) if folder is None else ("load_adapter", place)
            try:
                await _next(self._send(m.EngineCall(next(self._ids), method, args), channel))
            except EngineRefused as error:
                log.error("the adapter %s is no longer served: %s", name, error)
                self.adapters.pop(name, None)

    def _lose(self) -> None:
        """Requests that wait for an answer get an error instead."""
        if self._beginning is not None:
            self._beginning.cancel()
        self._is_ready.clear()
        self._channel = None
        self._stats = EngineStats()
        self._fail_all(EngineDown("the engine ended while it worked on this; it is being started again"))
        self._replies.clear()
        self._on_loss()


async def _next(replies: asyncio.Queue[Any]) -> Any:
    match reply := await replies.get():
        case m.Failed():
            raise EngineRefused(reply.kind, reply.message, reply.index)
        case Exception():
            raise reply
    return reply
