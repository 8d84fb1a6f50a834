"""The engine as callers see it: sessions that are awaited, and a thread behind them that never waits for anybody."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from PIL import Image
from torch import Tensor

from holotron.engine.config import EngineConfig
from holotron.engine.context import Context, OnUpdate, Residency, Turn
from holotron.engine.core import Core
from holotron.engine.errors import EngineError
from holotron.engine.grammar import GrammarCompiler
from holotron.engine.images import PreparedImage, prepare_image
from holotron.engine.sampling import SamplingParams
from holotron.engine.tasks import Event, FinishEvent, Task, TokenEvent, TokenLogprobs
from holotron.engine.turns import TokenSampler
from holotron.engine.weights import load_weights
from holotron.model.chat import Tokenizer
from holotron.model.image import load_image
from holotron.model.model import Model
from holotron.model.tiling import ImageProcessor, ProcessedImage

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
        self._core = Core(model, self.config, TokenSampler(model.config, tokenizer))
        self._processor = ImageProcessor(model.config.vision) if model.config.vision else None
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="images")
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._outbox: list[tuple[Callable[[Event], None], Event]] = []
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what runs, and stop."""
        if self._stopping:
            return
        self._call(self._cancel_all)
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()
        self._workers.shutdown(cancel_futures=True)
        self._core.residence.spill.close()

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
        return Session(self, self._call(lambda: self._core.open(session_id, on_update=policy, keep_images=keep_images)))

    def session(self, session_id: str) -> Session:
        """The open session of that id."""
        return Session(self, self._call(lambda: self._core.find(session_id)))

    def sessions(self) -> list[SessionInfo]:
        return self._call(lambda: [self._describe(context) for context in self._core.contexts.values()])

    def counters(self) -> dict[str, Any]:
        """What was done so far: steps, tokens computed and new, forks, spills."""
        return self._call(self._count)

    def continue_or_open(
        self, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]] = ()
    ) -> tuple[Session, int]:
        """A session whose next tokens are the rest of these: one that has computed their beginning, or a new one.

        Returns the number of tokens that need not be given again, too. A session that goes on from its end is taken
        over; one whose checkpoint matches is rolled back to it only if nothing after it would be lost, else forked.
        """

        def find() -> tuple[Context, int]:
            keys = [(start, prepared.key) for start, prepared in images]
            found = self._core.match(token_ids, keys)
            if found is None:
                return self._core.open(), 0
            context, position = found
            return self._core.branch(context, position), position

        context, position = self._call(find)
        return Session(self, context), position

    async def prepare_image(self, image: ImageLike) -> PreparedImage:
        """Decode, resize and fingerprint an image in a worker."""
        if self._processor is None:
            raise EngineError(f"{self.model.config.name} has no eyes; load a vision-language model to give it images")
        processor = self._processor

        def make() -> ProcessedImage:
            return image if isinstance(image, ProcessedImage) else processor(load_image(image))

        return await asyncio.get_running_loop().run_in_executor(self._workers, prepare_image, make)

    # ---- weights ----

    def update_weights(self, source: str | Path | dict[str, Tensor]) -> int:
        """Replace the weights between two steps, from a checkpoint folder or tensors by parameter name.

        Sessions go on; what each remembers is kept, computed again or dropped as it asked for when it was opened.
        Returns the new epoch. On an error the old weights stay.
        """

        def update() -> int:
            load_weights(self.model, source)
            self._core.new_epoch()
            return self._core.epoch

        return self._call(update)

    # ---- the thread ----

    def _loop(self) -> None:
        while True:
            with self._wake:
                while not (self._commands or self._core.tasks or self._stopping):
                    self._wake.wait()
                if self._stopping and not self._commands:
                    return
                commands = list(self._commands)
                self._commands.clear()
            for command in commands:
                command()
            worked = self._core.step()
            self._deliver()
            if not worked and self._core.tasks:
                with self._wake:
                    self._wake.wait(timeout=0.002)  # a copy from disk is under way, and nothing else can run

    def _call(self, function: Callable[[], Result]) -> Result:
        """Run something on the engine's thread, between two steps."""
        if threading.current_thread() is self._thread:
            return function()
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        with self._wake:
            if self._stopping:
                raise EngineError("the engine is closed")
            self._commands.append(run)
            self._wake.notify()
        return future.result()

    def _deliver(self) -> None:
        """Hand over the events of a step, with one wake-up per event loop and not one per token."""
        outbox, self._outbox = self._outbox, []
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Callable[[Event], None], Event]]] = {}
        for deliver, event in outbox:
            loop = getattr(deliver, "loop", None)
            if loop is None:
                deliver(event)
            else:
                by_loop.setdefault(loop, []).append((deliver, event))
        for loop, events in by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_deliver_all, events)

    def _start(self, context: Context, sampling: SamplingParams | None, deliver: Callable[[Event], None]) -> Task:
        def emit(_: Task, event: Event) -> None:
            self._outbox.append((deliver, event))

        task = Task(context, emit, sampling)
        if sampling is not None and sampling.grammar is not None:
            task.grammar = self._grammars().compile(sampling.grammar)
        self._core.submit(task)
        return task

    def _grammars(self) -> GrammarCompiler:
        if self._compiler is None:
            if self.tokenizer is None:
                raise EngineError("a grammar needs a tokenizer; give one to the engine")
            config = self.model.config
            self._compiler = GrammarCompiler(self.tokenizer, config.vocab_size, config.eos_token_ids)
        return self._compiler

    def _cancel_all(self) -> None:
        for task in list(self._core.tasks):
            self._core.cancel(task)

    def _describe(self, context: Context) -> SessionInfo:
        memory = self._core.runner.memory
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

    def _count(self) -> dict[str, Any]:
        core = self._core
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
            "epoch": core.epoch,
        }


class Session:
    """One agent's running context. Its operations wait for each other; different sessions do not."""

    def __init__(self, engine: Engine, context: Context) -> None:
        self._engine = engine
        self._context = context

    @property
    def id(self) -> str:
        return self._context.id

    @property
    def info(self) -> SessionInfo:
        return self._engine._call(lambda: self._engine._describe(self._context))

    @property
    def token_ids(self) -> list[int]:
        return self._engine._call(lambda: list(self._context.tokens))

    def append(self, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]] = ()) -> None:
        """Add tokens, and images with the offset of their first token among these. Nothing is computed yet."""
        self._engine._call(lambda: self._engine._core.append(self._context, token_ids, images))

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

    async def stream(
        self,
        token_ids: Sequence[int] = (),
        sampling: SamplingParams | None = None,
        *,
        images: Sequence[tuple[int, PreparedImage]] = (),
    ) -> AsyncIterator[Event]:
        """One turn, as it happens. Leaving the loop early, or being cancelled, ends the generation."""
        loop = asyncio.get_running_loop()
        inbox = _Inbox(loop)
        core = self._engine._core

        def begin() -> Task:
            if token_ids:
                core.append(self._context, token_ids, images)
            return self._engine._start(self._context, sampling or SamplingParams(), inbox)

        task = await loop.run_in_executor(None, self._engine._call, begin)
        finished = False
        try:
            while not finished:
                event = await inbox.queue.get()
                finished = isinstance(event, FinishEvent)
                if isinstance(event, FinishEvent) and event.error is not None:
                    raise event.error
                yield event
        finally:
            if not finished:
                self._engine._call(lambda: core.cancel(task))

    async def compute(self) -> None:
        """Compute what was appended, so that a later turn or fork starts at once."""
        loop = asyncio.get_running_loop()
        inbox = _Inbox(loop)
        await loop.run_in_executor(None, self._engine._call, lambda: self._engine._start(self._context, None, inbox))
        event = await inbox.queue.get()
        if isinstance(event, FinishEvent) and event.error is not None:
            raise event.error

    def fork(self, count: int) -> list[Session]:
        """So many sessions that go on from here, sharing what can be shared."""
        contexts = self._engine._call(lambda: self._engine._core.fork(self._context, count))
        return [Session(self._engine, context) for context in contexts]

    def rollback(self, turn: int, *, keep_prompt: bool = False) -> None:
        """Forget that turn and all after it; with keep_prompt only its answer, to generate it anew."""
        self._engine._call(lambda: self._engine._core.rollback(self._context, turn, keep_prompt=keep_prompt))

    def park(self) -> None:
        """Send the memory off the device; the next turn brings it back."""
        self._engine._call(lambda: self._engine._core.park(self._context))

    def resume(self) -> bool:
        """Bring the memory back ahead of the next turn."""
        return self._engine._call(lambda: self._engine._core.resume(self._context))

    def close(self) -> None:
        """Forget the session."""
        self._engine._call(lambda: self._engine._core.close(self._context))


class _Inbox:
    """Events of one generation, on the event loop that awaits them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.queue: asyncio.Queue[Event] = asyncio.Queue()

    def __call__(self, event: Event) -> None:
        self.queue.put_nowait(event)


def _deliver_all(events: list[tuple[Callable[[Event], None], Event]]) -> None:
    for deliver, event in events:
        deliver(event)
