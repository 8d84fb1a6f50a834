"""One turn as its caller sees it: events that come as they happen, on the event loop that awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from holotron.engine.images import PreparedImage
from holotron.engine.sampling import SamplingParams
from holotron.engine.session_state import SessionState
from holotron.engine.tasks import Event, FinishEvent, Task, TokenEvent

if TYPE_CHECKING:
    from holotron.engine.engine import Engine


class Inbox:
    """Where the engine's thread leaves the events of one task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.queue: asyncio.Queue[Event] = asyncio.Queue()


class Stream(AsyncIterator[Event]):
    """The events of one turn. It begins when the first is asked for, and ends early when nobody wants the next.

    With `add`, the engine's thread gives tokens to that function as they come, and only the end is an event here.
    Not an async generator: one that is left early is closed some time later, and until then its session is busy.
    """

    def __init__(
        self,
        engine: Engine,
        context: SessionState,
        sampling: SamplingParams | None,
        token_ids: Sequence[int] = (),
        images: Sequence[tuple[int, PreparedImage]] = (),
        add: Callable[[TokenEvent], None] | None = None,
    ) -> None:
        self._engine = engine
        self._context = context
        self._sampling = sampling
        self._token_ids = token_ids
        self._images = images
        self._add = add
        self._inbox: Inbox | None = None
        self._task: Task | None = None
        self._over = False

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        try:
            if self._inbox is None:
                self._inbox = Inbox(asyncio.get_running_loop())
                await self._begin(self._inbox)
            event = await self._inbox.queue.get()
        except BaseException:
            self.cancel()
            raise
        if isinstance(event, FinishEvent):
            self._over = True
            if event.error is not None:
                raise event.error
        return event

    async def _begin(self, inbox: Inbox) -> None:
        engine, add = self._engine, self._add

        # Nothing that the engine keeps may refer to this stream: it is dropped when its reader lets go of it.
        def emit(_: Task, event: Event) -> None:
            if add is not None and isinstance(event, TokenEvent):
                add(event)
            else:
                engine.post_event(inbox, event)

        task = self._task = Task(self._context, emit, self._sampling)
        if self._sampling is not None and self._sampling.grammar is not None:
            task.grammar = await engine.compile_grammar(self._sampling.grammar)
        engine.post_submit(task, self._token_ids, self._images)

    def cancel(self) -> None:
        """End the generation, without waiting for it. What was said so far stays in the session."""
        task, self._task = self._task, None
        if task is not None and not self._over:
            self._engine.post_cancel(task)
        self._over = True

    async def aclose(self) -> None:
        self.cancel()

    def __del__(self) -> None:
        self.cancel()
