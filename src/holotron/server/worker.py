"""The engine's process: takes messages from the HTTP process, and tells what the sessions say.

Started as `python -m holotron.server.worker FD`; it ends when the other end of that socket does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from holotron.engine.build import build_engine
from holotron.engine.engine import Engine, SessionInfo
from holotron.engine.errors import EngineError, SessionBusy, SessionClosed, TooLong
from holotron.engine.grammar import GrammarError, GrammarState
from holotron.engine.images import PreparedImage
from holotron.engine.session_state import OnUpdate, Residency, SessionState
from holotron.engine.stream import Inbox
from holotron.engine.tasks import Event, Task, TokenEvent
from holotron.model.errors import ImageError, ModelError
from holotron.server import messages as m
from holotron.server.channel import Channel

log = logging.getLogger(__name__)

Result = TypeVar("Result")
SWEEP_SECONDS = 1.0

# What an exception is called on the other side; the first that fits.
KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (SessionClosed, "unknown"),
    (SessionBusy, "busy"),
    (TooLong, "too_long"),
    (ImageError, "image"),
    (GrammarError, "grammar"),
    (EngineError, "invalid"),
    (ModelError, "invalid"),
    (ValueError, "invalid"),
    (OSError, "invalid"),
)


class BadImage(Exception):
    """One of a request's images cannot be used."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(str(error))
        self.index = index


class Relay(Inbox):
    """Takes the events of one choice off the engine's thread and puts them on the channel."""

    def __init__(self, worker: Worker, request: int, choice: int) -> None:
        self.loop = worker.loop
        self.queue = self  # type: ignore[assignment]  # the engine only ever puts
        self._worker = worker
        self._request = request
        self._choice = choice

    def put_nowait(self, event: Event) -> None:
        if isinstance(event, TokenEvent):
            ids, text, logprobs, epoch = event
            self._worker.channel.send(m.Tokens(self._request, self._choice, ids, text, logprobs, epoch))
            return
        error = None if event.error is None else str(event.error)
        self._worker.channel.send(m.Finished(self._request, self._choice, event.reason, event.text, event.stop, error))
        self._worker.finished(self._request, self._choice)


class Worker:
    """Serves one HTTP process."""

    def __init__(self, engine: Engine, channel: Channel, start: m.Start) -> None:
        self.engine = engine
        self.channel = channel
        self._start = start
        self.loop = asyncio.get_running_loop()
        self._tasks: dict[int, dict[int, Task]] = {}
        self._preparing: dict[int, asyncio.Task[None]] = {}
        self._beginning: set[int] = set()  # on their way to the engine's thread
        self._early: set[int] = set()  # of these, the ones that were cancelled meanwhile
        self._kept: OrderedDict[str, float] = OrderedDict()
        self._background: set[asyncio.Task[None]] = set()
        self._paused = False

    async def run(self) -> None:
        sweeping = asyncio.create_task(self._sweep())
        try:
            async for frame in self.channel.frames():
                for message in frame:
                    self._take(message)
        finally:
            sweeping.cancel()

    def _take(self, message: Any) -> None:
        if isinstance(message, m.Cancel):
            self._cancel(message.id)
            return
        handler = self._generate(message) if isinstance(message, m.Generate) else self._answer(message)
        task = asyncio.create_task(handler)
        if isinstance(message, m.Generate):
            self._preparing[message.id] = task
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _on_engine(self, function: Callable[[], Result]) -> Result:
        return await asyncio.wrap_future(self.engine.post(function))

    def _fail(self, request: int, error: BaseException) -> None:
        if isinstance(error, BadImage):
            self.channel.send(m.Failed(request, "image", str(error), error.index))
            return
        kind = next((kind for type_, kind in KINDS if isinstance(error, type_)), "internal")
        if kind == "internal":
            log.error("request %d failed", request, exc_info=error)
        message = str(error) if kind != "internal" else f"{type(error).__name__} in the engine; its log has the details"
        self.channel.send(m.Failed(request, kind, message))

    # ---- calls ----

    async def _answer(self, message: Any) -> None:
        try:
            value = await self._call(message)
        except Exception as error:
            self._fail(message.id, error)
        else:
            self.channel.send(m.Reply(message.id, value))

    async def _call(self, message: Any) -> Any:
        core = self.engine.core
        match message:
            case m.Open():
                policy = OnUpdate(message.on_update)
                opened = await self._on_engine(lambda: core.open(on_update=policy, keep_images=message.keep_images))
                return opened.id
            case m.Fork():
                forks = await self._on_engine(lambda: core.fork(core.find(message.session), message.count))
                return [context.id for context in forks]
            case m.Rollback():
                return await self._on_engine(
                    lambda: core.rollback(core.find(message.session), message.turn, keep_prompt=message.keep_prompt)
                )
            case m.Park():
                return await self._on_engine(lambda: core.park(core.find(message.session)))
            case m.Bring():
                return await self._on_engine(lambda: core.resume(core.find(message.session)))
            case m.Close():
                return await self._on_engine(lambda: core.close(core.find(message.session)))
            case m.Inspect():
                return _described(await self._on_engine(lambda: self.engine.describe(core.find(message.session))))
            case m.Pause():
                return await self._pause(message.mode)
            case m.Resume():
                self._paused = False
                return await asyncio.to_thread(self.engine.unpause)
            case m.Sleep():
                return await asyncio.to_thread(self.engine.sleep, weights=message.weights)
            case m.Wake():
                return await asyncio.to_thread(self.engine.wake)
            case m.UpdateWeights():
                return await asyncio.to_thread(lambda: self.engine.update_weights(_weights(message.path)))
        raise ValueError(f"the engine's process does not know the message {type(message).__name__}")

    async def _pause(self, mode: str) -> None:
        core = self.engine.core
        if mode == "abort":
            for request in list(self._tasks):
                self._cancel(request)
        elif mode == "wait" and not self._paused:
            running = await self._on_engine(lambda: list(core.tasks))
            while await self._on_engine(lambda: any(task in core.tasks for task in running)):
                await asyncio.sleep(0.01)
        self._paused = True
        await asyncio.to_thread(self.engine.pause)

    # ---- turns ----

    async def _generate(self, message: m.Generate) -> None:
        try:
            images = await asyncio.gather(*(self._prepare(i, *image) for i, image in enumerate(message.images)))
            grammar = message.sampling.grammar
            compiled = await self.engine.compile_grammar(grammar) if grammar else None
            self._preparing.pop(message.id, None)  # from here on it is cancelled by its tasks
            self._beginning.add(message.id)
            await self._on_engine(lambda: self._begin(message, images, compiled))
        except Exception as error:
            self._preparing.pop(message.id, None)
            self._beginning.discard(message.id)
            self._early.discard(message.id)
            self._fail(message.id, error)

    async def _prepare(self, index: int, offset: int, data: bytes) -> tuple[int, PreparedImage]:
        try:
            return offset, await self.engine.prepare_image(data)
        except ImageError as error:
            raise BadImage(index, error) from error

    def _begin(
        self, message: m.Generate, images: list[tuple[int, PreparedImage]], grammar: GrammarState | None
    ) -> None:
        """Runs on the engine's thread."""
        core = self.engine.core
        known = 0
        if message.session is not None:
            context = core.find(message.session)
            cached = context.held
        else:
            keys = [(offset, prepared.key) for offset, prepared in images]
            context, known = core.continue_or_open(message.token_ids, keys, message.pool)
            cached = min(known, context.held)
        rest = message.token_ids[known:]
        new_images = [(offset - known, prepared) for offset, prepared in images if offset >= known]
        before = len(context.tokens)
        contexts = [context]
        tasks: list[Task] = []
        try:
            if message.choices > 1:
                core.check_length(before + len(rest) + message.sampling.max_tokens)
                core.append(context, rest, new_images)
                contexts += core.fork(context, message.choices - 1)
                rest, new_images = (), []
            for choice, target in enumerate(contexts):
                tasks.append(self._task(message, choice, target, grammar))
                core.submit(tasks[-1], rest, new_images)
        except Exception:
            for task in tasks:
                core.cancel(task)
            for target in contexts if message.session is None else contexts[1:]:
                core.close(target)
            raise
        started = m.Started(message.id, before + (len(message.token_ids) - known), cached)

        def announce() -> None:
            self._tasks[message.id] = dict(enumerate(tasks))
            self.channel.send(started)
            self._beginning.discard(message.id)
            if message.id in self._early:
                self._early.discard(message.id)
                self._cancel(message.id)

        self.loop.call_soon_threadsafe(announce)

    def _task(self, message: m.Generate, choice: int, context: SessionState, grammar: GrammarState | None) -> Task:
        sampling = message.sampling
        if choice and sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + choice)  # or every choice would say the same
        relay = Relay(self, message.id, choice)
        engine = self.engine
        return Task(context, lambda _, event: engine.post_event(relay, event), sampling, grammar and grammar.copy())

    def finished(self, request: int, choice: int) -> None:
        """One choice has come to its end."""
        tasks = self._tasks.get(request, {})
        task = tasks.pop(choice, None)
        if not tasks:
            self._tasks.pop(request, None)
        if task is not None and task.context.pool is not None:
            self._kept[task.context.id] = time.monotonic()
            self._kept.move_to_end(task.context.id)

    def _cancel(self, request: int) -> None:
        if preparing := self._preparing.pop(request, None):
            preparing.cancel()
        if request in self._beginning:
            self._early.add(request)
        for task in self._tasks.get(request, {}).values():
            self.engine.post_cancel(task)

    # ---- upkeep ----

    async def _sweep(self) -> None:
        """Close what stateless requests left behind once nobody came back for it, and send the figures."""
        while True:
            now, most = time.monotonic(), self._start.kept_most
            kept = list(self._kept)
            late = {id_ for id_, since in self._kept.items() if now - since > self._start.kept_seconds}
            late |= set(kept[: max(0, len(kept) - most)])
            try:
                stats, closed = await asyncio.wrap_future(self.engine.post(partial(self._tidy, kept, late)))
            except EngineError:
                return
            for id_ in closed:
                self._kept.pop(id_, None)
            self.channel.send(stats)
            await asyncio.sleep(SWEEP_SECONDS)

    def _tidy(self, kept: list[str], late: set[str]) -> tuple[m.Stats, list[str]]:
        """Runs on the engine's thread."""
        core = self.engine.core
        closed = []
        for id_ in kept:
            context = core.contexts.get(id_)
            if context is None:
                closed.append(id_)
            elif context.task is None and not context.claimed and (id_ in late or _is_useless(context, core.epoch)):
                core.close(context)
                closed.append(id_)
        residency = dict.fromkeys((place.value for place in Residency), 0)
        waiting = 0
        for context in core.contexts.values():
            residency[context.residency.value] += 1
            waiting += context.task is not None and not context.task.begun and not context.task.generated
        values = {key: float(value) for key, value in self.engine.count().items()}
        config = core.config
        values |= {
            "waiting": float(waiting),
            "kept": float(len(kept) - len(closed)),
            "page_share": 1 - values["free_pages"] / max(1, config.pages - 1),
            "slot_share": 1 - values["free_slots"] / max(1, config.slots - 1),
        }
        return m.Stats(values, residency), closed


def _weights(path: str) -> str | dict[str, Tensor]:
    """A checkpoint folder as it is; of a single file, its tensors by parameter name."""
    if not Path(path).is_file():
        return path
    try:
        return load_file(path)
    except SafetensorError as error:
        raise EngineError(f"no safetensors file: {error}") from error


def _is_useless(context: SessionState, epoch: int) -> bool:
    """Whether no later request could go on from here: its memory is gone, or other weights have computed it."""
    return context.residency is Residency.NONE or context.epoch != epoch


def _described(info: SessionInfo) -> dict[str, Any]:
    described = asdict(info)
    described["residency"] = info.residency.value
    return described


async def serve(end: socket.socket) -> None:
    channel = await Channel.open(end)
    frames = channel.frames()
    (start,) = await anext(frames)
    assert isinstance(start, m.Start)
    loop = asyncio.get_running_loop()
    # The HTTP process decides when to end; Ctrl-C in a terminal reaches both of them.
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, lambda: None)
    engine = await asyncio.to_thread(build_engine, start.engine)
    channel.send(m.Ready(engine.core.max_length, str(engine.model.device)))
    try:
        await Worker(engine, channel, start).run()
    finally:
        channel.close()
        engine.close()


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="engine: %(levelname)s %(name)s: %(message)s")
    end = socket.socket(fileno=int(sys.argv[1]))
    try:
        asyncio.run(serve(end))
    except StopAsyncIteration:
        pass
    except (ModelError, EngineError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(3)


if __name__ == "__main__":
    main()
