"""The engine's process: takes messages from the HTTP process, and tells what the sessions say.

Started as `python -m holotron.server.worker FD json|text`; it ends when the other end of that socket does.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from holotron.engine.build import build_engine
from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError, GenerationFailed, SessionBusy, SessionClosed, TooLong
from holotron.engine.grammar import GrammarError
from holotron.engine.images import PreparedImage
from holotron.engine.requests import AnyEvent, FinishEvent
from holotron.engine.submission import Submission
from holotron.engine.weight_receiver import WeightReceiver
from holotron.engine.weights import NewWeights, read_weights, weight_checksums
from holotron.model.errors import ImageError, ModelError
from holotron.server import messages as m
from holotron.server.channel import Channel
from holotron.server.grammar_check import GrammarCheck
from holotron.server.log_lines import write_logs
from holotron.server.session_port import SessionPort

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
INTERNAL = "something went wrong in the engine; its log has the details"
SESSION_METHODS = ("open", "fork", "fork_after", "rollback", "park", "resume", "close", "describe")

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


class BadImage(ImageError):
    """One of a request's images cannot be used."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(str(error))
        self.index = index


@dataclass(eq=False)
class RunningTurn:
    """A turn that the engine works on."""

    submission: Submission
    unfinished: int  # choices
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Worker:
    """Serves one HTTP process."""

    def __init__(self, engine: Engine, channel: Channel, start: m.Start) -> None:
        self.engine = engine
        self.channel = channel
        self._start = start
        tokenizer, config = engine.tokenizer, engine.model.config
        known = (config.vocab_size, config.eos_token_ids)
        self.grammars = GrammarCheck(tokenizer, *known) if tokenizer is not None else None
        self._turns: dict[int, RunningTurn] = {}
        self._preparing: dict[int, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._paused = False
        self._held = {"dtype": str(engine.model.dtype).removeprefix("torch."), "device": engine.model.device.type}
        self._receiver = WeightReceiver(engine, start.transfer_seconds)
        self._port = SessionPort(engine, start.host)

    async def run(self) -> None:
        sweeping = asyncio.create_task(self._sweep())
        try:
            async for frame in self.channel.frames():
                for message in frame:
                    self._take(message)
        finally:
            sweeping.cancel()
            self._receiver.close()
            if self.grammars is not None:
                await self.grammars.close()

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

    def _fail(self, request: int, error: BaseException) -> None:
        kind = next((kind for type_, kind in KINDS if isinstance(error, type_)), "internal")
        if kind == "internal":
            log.error("request %d failed", request, exc_info=error)
        message = str(error) if kind != "internal" else INTERNAL
        self.channel.send(m.Failed(request, kind, message, error.index if isinstance(error, BadImage) else None))

    # ---- calls ----

    async def _answer(self, message: m.EngineCall) -> None:
        try:
            value = await self._call(message)
        except Exception as error:
            self._fail(message.id, error)
        else:
            self.channel.send(m.CallResult(message.id, value))

    async def _call(self, message: m.EngineCall) -> Any:
        if message.method in SESSION_METHODS:
            method = getattr(self.engine.by_id, message.method)
            return await asyncio.wrap_future(method(*message.args, **message.options))
        if message.method == "pause":
            return await self._pause(*message.args)
        if message.method == "rebuild":
            return await self._rebuild(*message.args, **message.options)
        if message.method == "unpause":
            self._paused = False
        blocking: dict[str, Callable[..., Any]] = {
            "unpause": self.engine.unpause,
            "sleep": self.engine.sleep,
            "wake": self.engine.wake,
            "update_weights": self._update_weights,
            "load_adapter": self.engine.load_adapter,
            "unload_adapter": self.engine.unload_adapter,
            "flush": lambda: self.engine.tidy(0.0, 0).result(),
            "join_group": self._receiver.join,
            "leave_group": self._receiver.leave,
            "receive_weights": self._receiver.receive,
            "commit_weights": self._receiver.commit,
            "discard_weights": self._receiver.discard,
            "stage_weights": lambda path: self._receiver.stage(self._read_weights(path)),
            "expect_session": self._port.expect,
            "send_session": self._port.send,
            "weight_checksums": lambda: weight_checksums(self.engine.model),
            "held_checksum": lambda *adapter: {"checksum": self.engine.checksum(*adapter)} | self._held,
        }
        return await asyncio.to_thread(blocking[message.method], *message.args, **message.options)

    async def _rebuild(self, id_: str, images: Sequence[tuple[int, bytes]], *said: Any, **options: Any) -> None:
        prepared = await asyncio.gather(*(self._prepare(i, *image) for i, image in enumerate(images)))
        await asyncio.wrap_future(self.engine.by_id.rebuild(id_, prepared, *said, **options))

    async def _pause(self, mode: str) -> None:
        """keep: turns stay where they are. wait: those that run are finished first. abort: they are cancelled.

        retract: as keep, but they compute what they remember again, with the weights of when they go on.
        """
        if mode == "abort":
            for request in [*self._preparing, *self._turns]:
                self._cancel(request)
        elif mode == "wait" and not self._paused:
            await asyncio.gather(*(turn.over.wait() for turn in self._turns.values()))
        self._paused = True
        await asyncio.to_thread(self.engine.pause)
        if mode == "retract":
            await asyncio.to_thread(self.engine.retract)

    def _update_weights(self, path: str, epoch: int) -> bool:
        """From a checkpoint folder or a file; whether those were all weights."""
        weights = self._read_weights(path)
        self.engine.update_weights(weights, epoch=epoch)
        return weights.whole

    def _read_weights(self, path: str) -> NewWeights:
        """Of a checkpoint folder, or a single file that has tensors by name."""
        try:
            source = load_file(path) if Path(path).is_file() else path
        except SafetensorError as error:
            raise EngineError(f"no safetensors file: {error}") from error
        return read_weights(self.engine.model, source)

    # ---- turns ----

    async def _generate(self, message: m.Generate) -> None:
        try:
            images = await asyncio.gather(*(self._prepare(i, *image) for i, image in enumerate(message.images)))
            grammar = message.sampling.grammar
            if grammar is not None and self.grammars is not None:
                await self.grammars.check(grammar)
            compiled = await self.engine.compile_grammar(grammar) if grammar else None
            self._preparing.pop(message.id, None)  # from here on it is cancelled as a turn
            submission = self.engine.submit(
                message.token_ids,
                message.sampling,
                partial(self._tell, message.id),
                session_id=message.session,
                pool=message.pool,
                images=images,
                grammar=compiled,
                choices=message.choices,
                adapter=message.adapter,
            )
            self._turns[message.id] = RunningTurn(submission, message.choices)
            await submission
        except Exception as error:
            self._preparing.pop(message.id, None)
            if turn := self._turns.pop(message.id, None):
                turn.over.set()
            self._fail(message.id, error)

    async def _prepare(self, index: int, offset: int, data: bytes) -> tuple[int, PreparedImage]:
        try:
            return offset, await self.engine.prepare_image(data)
        except ImageError as error:
            raise BadImage(index, error) from error

    def _tell(self, request: int, choice: int, event: AnyEvent) -> None:
        """Put an event of a turn on the channel."""
        if isinstance(event, FinishEvent) and event.error is not None:
            log.error("a turn of request %d failed", request, exc_info=event.error)
            event = replace(event, error=_tellable(event.error))
        self.channel.send(m.TurnEvent(request, choice, event))
        if not isinstance(event, FinishEvent):
            return
        turn = self._turns[request]
        turn.unfinished -= 1
        if not turn.unfinished:
            del self._turns[request]
            turn.over.set()

    def _cancel(self, request: int) -> None:
        if preparing := self._preparing.pop(request, None):
            preparing.cancel()
            self.channel.send(m.Failed(request, "aborted", "the turn was ended before it had begun"))
        if turn := self._turns.get(request):
            with suppress(EngineError):  # a closed engine has cancelled everything
                turn.submission.cancel()

    # ---- upkeep ----

    async def _sweep(self) -> None:
        """Close what stateless requests left behind once its time is over, and send the figures."""
        while True:
            try:
                stats = await asyncio.wrap_future(self.engine.tidy(self._start.kept_seconds, self._start.kept_most))
            except EngineError:
                return
            self.channel.send(stats)
            await asyncio.sleep(SWEEP_SECONDS)


def _tellable(error: Exception) -> Exception:
    """What a client may know of it, in a type that can be pickled."""
    return error if isinstance(error, GenerationFailed) else EngineError(INTERNAL)


async def serve(end: socket.socket) -> None:
    channel = await Channel.open(end)
    frames = channel.frames()
    (start,) = await anext(frames)
    assert isinstance(start, m.Start)
    loop = asyncio.get_running_loop()
    # The HTTP process decides when to end; an init system's signal reaches both of them.
    if threading.current_thread() is threading.main_thread():
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, lambda: None)
    try:
        engine = await asyncio.to_thread(build_engine, start.engine)
    except Exception as error:  # a device, a driver, memory: torch fails with nearly every type there is
        known = isinstance(error, ModelError | EngineError | OSError)
        reason = str(error) if known else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        channel.send(m.CannotStart(reason))
        channel.close()
        return
    gc.freeze()
    channel.send(m.Ready(engine.max_length))
    try:
        await Worker(engine, channel, start).run()
    finally:
        channel.close()
        engine.close()


def main() -> None:
    write_logs(sys.argv[2], logging.WARNING, process="engine")
    end = socket.socket(fileno=int(sys.argv[1]))
    with suppress(StopAsyncIteration):
        asyncio.run(serve(end))


if __name__ == "__main__":
    main()
