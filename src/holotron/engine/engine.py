"""The engine as callers see it: sessions that are awaited, and a thread behind them that never waits for anybody."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from PIL import Image
from torch import Tensor

from holotron.engine.config import EngineConfig
from holotron.engine.engine_loop import EngineLoop
from holotron.engine.errors import EngineError
from holotron.engine.grammar import Grammar, GrammarCompiler, GrammarState
from holotron.engine.images import PreparedImage, prepare_image
from holotron.engine.sampling import SamplingParams
from holotron.engine.session_state import OnUpdate, Residency, SessionState, Turn
from holotron.engine.stream import Inbox, Stream
from holotron.engine.tasks import Event, Task, TokenEvent, TokenLogprobs
from holotron.engine.token_sampler import TokenSampler
from holotron.engine.weights import copy_weights, read_weights
from holotron.model.image import load_image
from holotron.model.model import Model
from holotron.model.text.tokenizer import Tokenizer
from holotron.model.tiling import ImageProcessor, ProcessedImage

log = logging.getLogger(__name__)

Result = TypeVar("Result")
ImageLike = ProcessedImage | Image.Image | bytes | Path


@dataclass
class Answer:
    """What a session generated in one turn."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    finish_reason: str = ""
    stop: str | int | None = None
    epoch: int = 0

    def add(self, event: Event) -> None:
        self.text += event.text
        if isinstance(event, TokenEvent):
            self.token_ids.extend(event.token_ids)
            self.logprobs.extend([event.logprobs, *[None] * (len(event.token_ids) - 1)])
            self.epoch = event.epoch
        else:
            self.finish_reason, self.stop = event.reason, event.stop


@dataclass(frozen=True)
class SessionInfo:
    """A session from outside."""

    id: str
    tokens: int
    computed: int
    device_bytes: int
    residency: Residency
    turns: tuple[Turn, ...]
    epoch: int
    running: bool


class Engine:
    """Sessions over one model on one device. Use as a context manager, or close it."""

    def __init__(self, model: Model, config: EngineConfig | None = None, tokenizer: Tokenizer | None = None) -> None:
        self.model = model
        self.config = config or EngineConfig()
        self.tokenizer = tokenizer
        self._compiler: GrammarCompiler | None = None
        # Only for what runs on the engine's thread; `post` takes others there.
        self.core = EngineLoop(model, self.config, TokenSampler(model.config, tokenizer))
        self._processor = ImageProcessor(model.config.vision) if model.config.vision else None
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="engine-worker")
        self._compiler_lock = threading.Lock()
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._paused = False
        self._outbox: list[tuple[Inbox, Event]] = []
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
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
        self._workers.shutdown(cancel_futures=True)
        self.core.residence.spill.close()

    # ---- sessions ----

    def open_session(
        self,
        session_id: str | None = None,
        *,
        on_update: OnUpdate | str = OnUpdate.KEEP,
        keep_images: int | None = None,
    ) -> Session:
        """A new, empty session. keep_images: give back the keys and values of all but the last so many screenshots."""
        policy = OnUpdate(on_update)
        return Session(self, self._call(lambda: self.core.open(session_id, on_update=policy, keep_images=keep_images)))

    def session(self, session_id: str) -> Session:
        """The open session of that id."""
        return Session(self, self._call(lambda: self.core.find(session_id)))

    def sessions(self) -> list[SessionInfo]:
        return self._call(lambda: [self.describe(context) for context in self.core.contexts.values()])

    def counters(self) -> dict[str, Any]:
        """What was done so far: steps, tokens computed and new, forks, spills."""
        return self._call(self.count)

    def continue_or_open(
        self, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]] = (), pool: str | None = None
    ) -> tuple[Session, int]:
        """A session whose next tokens are the rest of these: one that has computed their beginning, or a new one.

        Returns the number of tokens that need not be given again, too. A session that goes on from its end is taken
        over; one whose checkpoint matches is rolled back to it only if nothing after it would be lost, else forked.
        Only sessions of the same pool are looked at.
        """
        keys = [(start, prepared.key) for start, prepared in images]
        context, position = self._call(lambda: self.core.continue_or_open(token_ids, keys, pool))
        return Session(self, context), position

    async def prepare_image(self, image: ImageLike) -> PreparedImage:
        """Decode, resize and fingerprint an image in a worker."""
        if self._processor is None:
            raise EngineError(f"{self.model.config.name} has no eyes; load a vision-language model to give it images")
        processor = self._processor

        def prepare() -> PreparedImage:
            # The file may have changed by the time the image is needed again.
            source = image.read_bytes() if isinstance(image, Path) and image.is_file() else image
            return prepare_image(
                lambda: source if isinstance(source, ProcessedImage) else processor(load_image(source))
            )

        return await self._work(prepare)

    # ---- weights ----

    def update_weights(self, source: str | Path | dict[str, Tensor]) -> int:
        """Replace the weights between two steps, from a checkpoint folder or tensors by parameter name.

        Sessions go on; what each remembers is kept, computed again or dropped as it asked for when it was opened.
        Returns the new epoch. On an error the old weights stay.
        """
        tensors = read_weights(self.model, source)  # takes its time, during which sessions go on

        def update() -> int:
            copy_weights(self.model, tensors)
            self.core.new_epoch()
            return self.core.epoch

        return self._call(update)

    def sleep(self, *, weights: bool = False) -> None:
        """Give the device's memory to somebody else: sessions leave it, and with `weights` the model goes to the host.

        SessionBusy if a session is at work. Asleep, the engine takes every call; turns begin after `wake`.
        """
        self._call(lambda: self.core.sleep(weights=weights))

    def wake(self) -> None:
        """Take the memory back and go on."""
        self._call(self.core.wake)

    def pause(self) -> None:
        """Stop after the step that runs; turns stay where they are until `unpause`."""
        self._call(lambda: setattr(self, "_paused", True))

    def unpause(self) -> None:
        self._call(lambda: setattr(self, "_paused", False))

    # ---- for streams ----

    async def compile_grammar(self, grammar: Grammar) -> GrammarState:
        """Compile in a worker: a hard grammar takes seconds."""
        if self.tokenizer is None:
            raise EngineError("a grammar needs a tokenizer; give one to the engine")
        return await self._work(lambda: self._grammars().compile(grammar))

    def post(self, function: Callable[[], Result]) -> Future[Result]:
        """Have something run on the engine's thread, between two steps."""
        future: Future[Result] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        with self._wake:
            self._check_open()
            self._commands.append(run)
            self._wake.notify()
        return future

    def post_submit(
        self, task: Task, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]]
    ) -> Future[None]:
        return self.post(lambda: self.core.submit(task, token_ids, images))

    def post_cancel(self, task: Task) -> None:
        with suppress(EngineError):  # a closed engine has cancelled everything
            self.post(lambda: self.core.cancel(task))

    def post_event(self, inbox: Inbox, event: Event) -> None:
        self._outbox.append((inbox, event))

    # ---- the thread ----

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not (self._commands or self._stopping or self._has_work()):
                    self._wake.wait()
                stopping = self._stopping
            for _ in range(len(self._commands)):
                self._commands.popleft()()
            if stopping:
                while self.core.tasks:
                    self.core.cancel(self.core.tasks[0])
                self._deliver()
                return
            worked = self._has_work() and self._step()
            self._deliver()
            if not worked and self._has_work():
                with self._wake:
                    self._wake.wait(timeout=0.002)  # a copy from disk is under way, and nothing else can run

    def _has_work(self) -> bool:
        return bool(self.core.tasks) and not self.core.asleep and not self._paused

    def _step(self) -> bool:
        try:
            return self.core.step()
        except Exception as error:
            # The loop must outlive its mistakes: whoever waits would wait for ever.
            log.exception("a step could not be planned")
            self.core.abandon(error)
            return True

    def _call(self, function: Callable[[], Result]) -> Result:
        """Run something on the engine's thread and wait for it."""
        return self.post(function).result()

    async def _work(self, function: Callable[[], Result]) -> Result:
        """Run something in a worker."""
        with self._wake:
            self._check_open()
            future = self._workers.submit(function)
        return await asyncio.wrap_future(future)

    def _check_open(self) -> None:
        if self._stopping:
            raise EngineError("the engine is closed")

    def _deliver(self) -> None:
        """Hand over the events of a step, with one wake-up per event loop and not one per token."""
        outbox, self._outbox = self._outbox, []
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Inbox, Event]]] = {}
        for inbox, event in outbox:
            by_loop.setdefault(inbox.loop, []).append((inbox, event))
        for loop, events in by_loop.items():
            with suppress(RuntimeError):  # a loop that was closed has nobody waiting
                loop.call_soon_threadsafe(_put_all, events)

    def _grammars(self) -> GrammarCompiler:
        with self._compiler_lock:
            if self._compiler is None:
                assert self.tokenizer is not None
                config = self.model.config
                self._compiler = GrammarCompiler(self.tokenizer, config.vocab_size, config.eos_token_ids)
            return self._compiler

    def describe(self, context: SessionState) -> SessionInfo:
        """For the engine's thread: a session from outside."""
        memory = self.core.runner.memory
        on_device = context.slot is not None
        slots = (1 + len(context.checkpoints)) if on_device else 0
        return SessionInfo(
            context.id,
            len(context.tokens),
            context.computed,
            slots * memory.slot_bytes + len(context.pages) * memory.page_bytes,
            context.residency,
            tuple(context.turns),
            context.epoch,
            context.task is not None,
        )

    def count(self) -> dict[str, Any]:
        """For the engine's thread: `counters`."""
        core = self.core
        return {
            **vars(core.counters),
            **vars(core.residence.traffic),
            "redundancy": core.counters.redundancy,
            "sessions": len(core.contexts),
            "running": len(core.tasks),
            "free_slots": core.residence.slots.free,
            "free_pages": core.residence.pages.free,
            "host_bytes": core.residence.spill.host_used,
            "disk_bytes": core.residence.spill.disk_used,
            "spilled_bytes": core.residence.spill.spilled_bytes,
            "restored_bytes": core.residence.spill.restored_bytes,
            "epoch": core.epoch,
        }


class Session:
    """One agent's running context. It does one thing at a time; asked for another meanwhile, it is SessionBusy."""

    def __init__(self, engine: Engine, context: SessionState) -> None:
        self._engine = engine
        self._context = context

    @property
    def id(self) -> str:
        return self._context.id

    @property
    def info(self) -> SessionInfo:
        return self._engine._call(lambda: self._engine.describe(self._context))

    @property
    def token_ids(self) -> list[int]:
        return self._engine._call(lambda: list(self._context.tokens))

    def append(self, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]] = ()) -> None:
        """Add tokens, and images with the offset of their first token among these. Nothing is computed yet."""
        self._engine._call(lambda: self._engine.core.append(self._context, token_ids, images))

    async def generate(
        self,
        token_ids: Sequence[int] = (),
        sampling: SamplingParams | None = None,
        *,
        images: Sequence[tuple[int, PreparedImage]] = (),
    ) -> Answer:
        """One turn: append, then generate."""
        answer = Answer()
        async for event in self.stream(token_ids, sampling, images=images):
            answer.add(event)
        return answer

    def stream(
        self,
        token_ids: Sequence[int] = (),
        sampling: SamplingParams | None = None,
        *,
        images: Sequence[tuple[int, PreparedImage]] = (),
    ) -> Stream:
        """One turn, as it happens. Leaving the loop early, or being cancelled, ends the generation."""
        return Stream(self._engine, self._context, sampling or SamplingParams(), token_ids, images)

    async def compute(self) -> None:
        """Compute what was appended, so that a later turn or fork starts at once."""
        async for _ in Stream(self._engine, self._context, None):
            pass

    def fork(self, count: int) -> list[Session]:
        """So many sessions that go on from here, sharing what can be shared."""
        contexts = self._engine._call(lambda: self._engine.core.fork(self._context, count))
        return [Session(self._engine, context) for context in contexts]

    def rollback(self, turn: int, *, keep_prompt: bool = False) -> None:
        """Forget that turn and all after it; with keep_prompt only its answer, to generate it anew."""
        self._engine._call(lambda: self._engine.core.rollback(self._context, turn, keep_prompt=keep_prompt))

    def park(self) -> None:
        """Send the memory off the device; the next turn brings it back."""
        self._engine._call(lambda: self._engine.core.park(self._context))

    def resume(self) -> bool:
        """Bring the memory back ahead of the next turn."""
        return self._engine._call(lambda: self._engine.core.resume(self._context))

    def close(self) -> None:
        """Forget the session."""
        self._engine._call(lambda: self._engine.core.close(self._context))


def _put_all(events: list[tuple[Inbox, Event]]) -> None:
    for inbox, event in events:
        inbox.queue.put_nowait(event)
