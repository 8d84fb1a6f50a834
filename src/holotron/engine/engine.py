"""The engine as callers see it: sessions that are awaited, and a thread behind them that never waits for a caller."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from torch import Tensor

from holotron.engine.adapters import set_adapter, update_adapter
from holotron.engine.by_id import SessionsById
from holotron.engine.config import EngineConfig
from holotron.engine.engine_loop import EngineLoop
from holotron.engine.errors import EngineError
from holotron.engine.grammar import Grammar, GrammarCompiler, GrammarState
from holotron.engine.images import ImageFile, ImageLike, PreparedImage, prepare_decoded, prepare_image
from holotron.engine.info import EngineStats, SessionInfo, counters, describe, engine_stats
from holotron.engine.migration import Fill, Send, attach, detach, discard, read_session, write_session
from holotron.engine.prefix import close_unused, continue_or_open
from holotron.engine.requests import AnyEvent, FinishEvent, GenerationRequest, PlacedImages
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session import Session
from holotron.engine.session_state import OnUpdate
from holotron.engine.stream import Listener
from holotron.engine.submission import Submission
from holotron.engine.token_sampler import TokenSampler
from holotron.engine.warm_up import warm_up
from holotron.engine.weights import NewWeights, bit_checksum, copy_weights, held_weights, read_weights
from holotron.model.adapters import read_served
from holotron.model.checkpoint.adapter import LowRank
from holotron.model.image import DecodedFile
from holotron.model.model import Model
from holotron.model.text.tokenizer import Tokenizer
from holotron.model.tiling import ImageProcessor

log = logging.getLogger(__name__)

MOST_WORKERS = 4
WORKER_NICENESS = 10
Result = TypeVar("Result")


class Engine:
    """Sessions over one model on one device. Use it as a context manager, or close it.

    A stepped engine has no thread: its caller drives `loop` itself, on one thread, and awaits nothing.
    """

    def __init__(
        self,
        model: Model,
        config: EngineConfig | None = None,
        tokenizer: Tokenizer | None = None,
        *,
        stepped: bool = False,
    ) -> None:
        self.model = model
        self.config = config or EngineConfig()
        self.tokenizer = tokenizer
        self._compiler: GrammarCompiler | None = None
        # Only for what runs on the engine's thread; `post` takes others there.
        self.loop = EngineLoop(model, self.config, TokenSampler(model.config, tokenizer))
        self.by_id = SessionsById(self.loop, self._post)
        vision, on_device = model.config.vision, model.device.type == "cuda"
        self._processor = ImageProcessor(vision, on_device=on_device) if vision else None
        # No more than there are cores, or streams lose a third of their pace while images are prepared. Grammars have
        # workers of their own, which a hard one may hold for long.
        count = min(MOST_WORKERS, os.cpu_count() or 1)
        self._workers = ThreadPoolExecutor(count, "engine-worker", initializer=_give_way)
        self._grammar_workers = ThreadPoolExecutor(MOST_WORKERS, "engine-grammar", initializer=_give_way)
        self._compiler_lock = threading.Lock()
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = stepped  # nothing may be posted to a thread that is not there
        self._paused = False
        self._outbox: list[tuple[Listener, AnyEvent]] = []
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        if not stepped:
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what runs, and stop."""
        with self._wake:
            if self._stopping:
                return
            self._stopping = True
            self._wake.notify()
        self._thread.join()
        for workers in (self._workers, self._grammar_workers):
            workers.shutdown(cancel_futures=True)
        self.loop.memory.offload_store.close()

    # ---- sessions ----

    def open_session(
        self,
        session_id: str | None = None,
        *,
        on_update: OnUpdate | str = OnUpdate.KEEP,
        keep_images: int | None = None,
        adapter: str | None = None,
    ) -> Session:
        """A new, empty session. keep_images: give back the keys and values of all but the last so many screenshots.

        adapter: the LoRA adapter of the model that it and its forks compute with, from now on.
        """
        return self.opening_session(session_id, on_update, keep_images, adapter).result()

    def opening_session(
        self, session_id: str | None, on_update: OnUpdate | str, keep_images: int | None, adapter: str | None
    ) -> Future[Session]:
        """`open_session`, for callers that must not wait."""
        given: dict[str, Any] = {"on_update": OnUpdate(on_update), "keep_images": keep_images, "adapter": adapter}
        return self._post(lambda: Session(self, self.loop.open(session_id, **given)))

    def session(self, session_id: str) -> Session:
        """The open session of that id."""
        return Session(self, self._call(lambda: self.loop.find(session_id)))

    def sessions(self) -> list[SessionInfo]:
        return self._call(lambda: [describe(self.loop, session) for session in self.loop.sessions.values()])

    def counters(self) -> dict[str, Any]:
        """What was done so far: steps, tokens computed and new, forks, evictions."""
        return self._call(lambda: counters(self.loop))

    def continue_or_open(
        self,
        token_ids: Sequence[int],
        images: PlacedImages = (),
        pool: str | None = None,
        *,
        any_epoch: bool = False,
        adapter: str | None = None,
    ) -> tuple[Session, int]:
        """A session whose next tokens are the rest of these: one that has computed their beginning, or a new one.

        Returns the number of tokens that need not be given again, too. A session that goes on from its end is taken
        over; one whose checkpoint matches is rolled back to it only if nothing after it would be lost, else forked.
        Only sessions of the same pool and adapter are looked at, and only those that the present weights have computed:
        with any_epoch, what earlier weights have computed will do.
        """
        keys = [(start, prepared.key) for start, prepared in images]
        session, position = self._call(
            lambda: continue_or_open(self.loop, token_ids, keys, pool, any_epoch=any_epoch, adapter=adapter)
        )
        return Session(self, session), position

    def send_session(self, session_id: str, send: Send) -> None:
        """Have an idle session leave for another engine; called on a thread that may wait.

        `send` gets a head and buffers, and returns when the other engine has it. Where that fails it stays, as it was.
        """
        detached = self._call(lambda: detach(self.loop, self.loop.find(session_id)))
        try:
            send(*write_session(self.loop, self._post, detached))
        except BaseException:
            self._call(lambda: attach(self.loop, detached))
            raise
        self._call(lambda: discard(self.loop, detached))

    def receive_session(self, head: bytes, fill: Fill) -> Session:
        """The session that another engine sends; `fill` fills the buffers after its head. EngineError: refused."""

        def image_file(data: bytes) -> ImageFile:
            assert self._processor is not None  # engines of one model have, or have not, a vision tower
            return ImageFile(data, self._processor)

        detached = read_session(self.loop, self._post, head, fill, image_file)
        return Session(self, self._call(lambda: attach(self.loop, detached)))

    async def prepare_image(self, image: ImageLike) -> PreparedImage:
        """Decode, resize and fingerprint an image in a worker."""
        if self._processor is None:
            raise EngineError(
                f"{self.model.config.name} has no vision tower; load a vision-language model to give it images"
            )
        processor = self._processor

        def prepare() -> PreparedImage:
            if isinstance(image, DecodedFile):
                return prepare_decoded(image, processor)
            # The file may have changed by the time the image is needed again.
            source = image.read_bytes() if isinstance(image, Path) and image.is_file() else image
            return prepare_image(ImageFile(source, processor))

        if isinstance(image, DecodedFile) and processor.leaves_pixels:
            return prepare()
        return await self._work(self._workers, prepare)

    # ---- for callers on an event loop, that must not wait ----

    def submit(
        self,
        token_ids: Sequence[int],
        sampling: SamplingParams,
        hear: Callable[[int, AnyEvent], None],
        *,
        session_id: str | None = None,
        pool: str | None = None,
        images: PlacedImages = (),
        grammar: GrammarState | None = None,
        choices: int = 1,
        adapter: str | None = None,
    ) -> Submission:
        """Begin a turn in the session of that id or, without one, in what `continue_or_open` finds in the pool.

        `hear` is called on the running event loop with the number of a choice and an event: a StartEvent first, then
        tokens, and at the end of each choice a FinishEvent. A turn that is refused has no events; awaiting the
        submission raises why.
        """
        event_loop = asyncio.get_running_loop()
        listeners = [Listener(event_loop, partial(hear, choice)) for choice in range(choices)]
        return Submission(
            token_ids,
            sampling,
            lambda choice, event: self._tell(listeners[choice], event),
            session_id,
            pool,
            images,
            grammar,
            choices,
            adapter,
            lambda function: self._post(lambda: function(self.loop)),
        )

    def tidy(self, seconds: float, most: int) -> Future[EngineStats]:
        """Close what requests without a session left behind so long ago, and all but the last `most`; the figures."""

        def tidy() -> EngineStats:
            close_unused(self.loop, time.monotonic() - seconds, most)
            return engine_stats(self.loop)

        return self._post(tidy)

    @property
    def max_length(self) -> int:
        """The tokens that a session can have at most."""
        return self.loop.max_length

    # ---- weights ----

    def update_weights(
        self, source: str | Path | Mapping[str, Tensor] | NewWeights, *, epoch: int | None = None
    ) -> int:
        """Replace the weights between two steps, from a checkpoint folder or tensors by name (see `read_weights`).

        Sessions go on; what each remembers is kept, computed again or dropped as it asked for when it was opened.
        Returns the new epoch: the number given, or the next. On an error the old weights stay.
        """
        # Takes its time, during which sessions go on.
        weights = source if isinstance(source, NewWeights) else read_weights(self.model, source)

        def update() -> int:
            copy_weights(self.model, weights)
            self.loop.new_epoch(epoch)
            return self.loop.epoch

        return self._call(update)

    def load_adapter(self, name: str, folder: str | Path, epoch: int | None = None) -> None:
        """Serve a LoRA adapter under a name from the next step on; all of it, or an error and what was there before.

        Where the name has one already, sessions that were opened with that go on with it, and new ones get this. With
        an epoch it is other values of the same: `update_adapter`.
        """
        changes = read_served(self.model, name, folder)  # takes its time, during which sessions go on
        if epoch is None:
            self._call(lambda: set_adapter(self.loop, name, changes))
        else:
            self.update_adapter(name, changes, epoch=epoch)

    def update_adapter(self, name: str, changes: Mapping[str, LowRank], *, epoch: int | None = None) -> int:
        """Replace an adapter's values between two steps, by layer: as `update_weights`, for what a LoRA trainer learns.

        A name that has no adapter yet gets one; else layers and ranks must be those that it has.
        """

        def update() -> int:
            update_adapter(self.loop, name, changes)
            self.loop.new_epoch(epoch)
            return self.loop.epoch

        return self._call(update)

    def checksum(self, adapter: str | None = None) -> str:
        """Of the bits of what it computes with between two steps: its weights, or those of an adapter."""
        return self._call(lambda: bit_checksum(held_weights(self.model, adapter).items()))

    def unload_adapter(self, name: str) -> None:
        """Give an adapter's room back; SessionBusy while open sessions have it."""
        self._call(lambda: set_adapter(self.loop, name, None))

    def warm_up(self, sessions: int, adapter: str | None = None) -> None:
        """Compile and record now what so many sessions will run, not while they wait; only a GPU has need of it.

        EngineError if the engine is closed meanwhile, which does not wait for the rest.
        """
        if self.model.device.type == "cuda":
            self._call(lambda: warm_up(self.loop, self._step_while_open, sessions, adapter))

    def sleep(self, *, weights: bool = False) -> None:
        """Free the device's memory: sessions are evicted, and with `weights` the model goes to the host.

        SessionBusy if a session is at work. Asleep, the engine takes every call; turns begin after `wake`.
        """
        self._call(lambda: self.loop.sleep(weights=weights))

    def wake(self) -> None:
        """Take the memory back and go on."""
        self._call(self.loop.wake)

    def pause(self) -> None:
        """Stop after the step that runs; turns stay where they are until `unpause`."""
        self._call(lambda: setattr(self, "_paused", True))

    def retract(self) -> None:
        """Have the turns that are under way compute again what their sessions remember, when they go on."""
        self._call(self.loop.retract)

    def unpause(self) -> None:
        self._call(lambda: setattr(self, "_paused", False))

    async def compile_grammar(self, grammar: Grammar) -> GrammarState:
        """Compile in a worker: a hard grammar takes seconds. One that was compiled lately is at hand."""
        if self.tokenizer is None:
            raise EngineError("a grammar needs a tokenizer; give one to the engine")
        kept = self._compiler.kept(grammar) if self._compiler is not None else None
        if kept is not None:
            return kept
        return await self._work(self._grammar_workers, lambda: self._grammars().compile(grammar))

    # ---- the thread ----

    def _post(self, function: Callable[[], Result]) -> Future[Result]:
        """Have something run on the engine's thread, between two steps."""
        future: Future[Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._command(run)
        return future

    def _command(self, run: Callable[[], None]) -> None:
        with self._wake:
            self._check_open()
            self._commands.append(run)
            self._wake.notify()

    def _submit(self, request: GenerationRequest, token_ids: Sequence[int], images: PlacedImages) -> None:
        """Have a request submitted, without waiting for it: where that fails, its only event says so."""

        def submit() -> None:
            try:
                if not request.cancelled:
                    self.loop.submit(request, token_ids, images)
            except Exception as error:
                request.emit(request, FinishEvent("failed", error=error))

        self._command(submit)

    def _cancel(self, request: GenerationRequest) -> None:
        request.cancelled = True
        with suppress(EngineError):  # a closed engine has cancelled everything
            self._post(lambda: self.loop.cancel(request))

    def _tell(self, listener: Listener, event: AnyEvent) -> None:
        self._outbox.append((listener, event))

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._commands or self._stopping or self._has_work()):
                    self._wake.wait()
                stopping = self._stopping
            if self._commands:
                self.loop.settle()  # commands see sessions as they are
            for _ in range(len(self._commands)):
                self._commands.popleft()()
            if stopping:
                while self.loop.requests:
                    self.loop.cancel(self.loop.requests[0])
                self._deliver()
                return
            worked = self._has_work() and self._step()
            self._deliver()
            if not worked and self._has_work():
                with self._wake:
                    self._wake.wait(timeout=0.002)  # a copy from disk is under way, and nothing else can run

    def _has_work(self) -> bool:
        return bool(self.loop.requests) and not self.loop.asleep and not self._paused

    def _step(self) -> bool:
        try:
            return self.loop.step()
        except Exception as error:
            # The loop must outlive its mistakes: callers would wait for ever.
            log.exception("a step could not be planned")
            self.loop.abandon(error)
            return True

    def _step_while_open(self) -> bool:
        self._check_open()
        return self.loop.step()

    def _call(self, function: Callable[[], Result]) -> Result:
        """Run something on the engine's thread and wait for it."""
        return self._post(function).result()

    async def _work(self, workers: ThreadPoolExecutor, function: Callable[[], Result]) -> Result:
        """Run something in a worker."""
        with self._wake:
            self._check_open()
            future = workers.submit(function)
        return await asyncio.wrap_future(future)

    def _check_open(self) -> None:
        if self._stopping:
            raise EngineError("the engine is closed")

    def _deliver(self) -> None:
        """Hand over the events of a step, with one wake-up per event loop and not one per token."""
        outbox, self._outbox = self._outbox, []
        by_event_loop: dict[asyncio.AbstractEventLoop, list[tuple[Listener, AnyEvent]]] = {}
        for listener, event in outbox:
            by_event_loop.setdefault(listener.event_loop, []).append((listener, event))
        for event_loop, events in by_event_loop.items():
            with suppress(RuntimeError):  # nothing waits on a loop that was closed
                event_loop.call_soon_threadsafe(_hear_all, events)

    def _grammars(self) -> GrammarCompiler:
        with self._compiler_lock:
            if self._compiler is None:
                assert self.tokenizer is not None
                config = self.model.config
                self._compiler = GrammarCompiler(self.tokenizer, config.vocab_size, config.eos_token_ids)
            return self._compiler


def _give_way() -> None:
    """Where cores are few, preparing images must not take them from the engine's thread. On Linux a thread has its own
    priority."""
    with suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), WORKER_NICENESS)


def _hear_all(events: list[tuple[Listener, AnyEvent]]) -> None:
    for listener, event in events:
        listener.hear(event)
