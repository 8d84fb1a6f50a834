"""One turn as its caller sees it: events that come as they happen, on the event loop that awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holotron.engine.requests import Event, FinishEvent, GenerationRequest, PlacedImages, TokenEvent
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import SessionState

if TYPE_CHECKING:
    from holotron.engine.engine import Engine


@dataclass(frozen=True, eq=False)
class Listener:
    """Who hears the events of a turn: a function that is called on its own event loop."""

    event_loop: asyncio.AbstractEventLoop
    hear: Callable[[Any], None]


@dataclass(eq=False)
class Stream(AsyncIterator[Event]):
    """The events of one turn. It begins when the first is asked for, and ends early when the next is not asked for.

    With `add`, the engine's thread gives tokens to that function as they come, and only the end is an event here.
    Not an async generator: one that is left early is closed some time later, and until then its session is busy.
    """

    engine: Engine
    state: SessionState
    sampling: SamplingParams | None
    token_ids: Sequence[int] = ()
    images: PlacedImages = ()
    add: Callable[[TokenEvent], None] | None = None
    _events: asyncio.Queue[Event] | None = field(init=False, default=None)
    _request: GenerationRequest | None = field(init=False, default=None)
    _over: bool = field(init=False, default=False)

    async def __anext__(self) -> Event:
        if self._over:
            raise StopAsyncIteration
        try:
            if self._events is None:
                self._events = asyncio.Queue()
                await self._begin(Listener(asyncio.get_running_loop(), self._events.put_nowait))
            event = await self._events.get()
        except BaseException:
            self.cancel()
            raise
        if isinstance(event, FinishEvent):
            self._over = True
            if event.error is not None:
                raise event.error
        return event

    async def _begin(self, listener: Listener) -> None:
        engine, add = self.engine, self.add

        # Nothing that the engine keeps may refer to this stream: it is dropped when its reader lets go of it.
        def emit(_: GenerationRequest, event: Event) -> None:
            if add is not None and isinstance(event, TokenEvent):
                add(event)
            else:
                engine._tell(listener, event)

        request = self._request = GenerationRequest(self.state, emit, self.sampling)
        if self.sampling is not None and self.sampling.grammar is not None:
            request.grammar = await engine.compile_grammar(self.sampling.grammar)
        engine._submit(request, self.token_ids, self.images)

    def cancel(self) -> None:
        """End the generation, without waiting for it. What was said so far stays in the session."""
        request, self._request = self._request, None
        if request is not None and not self._over:
            self.engine._cancel(request)
        self._over = True

    async def aclose(self) -> None:
        self.cancel()

    def __del__(self) -> None:
        self.cancel()
