"""A turn that is given to the engine in one go: a session is found for it, forked for its choices, and set to work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from holotron.engine.engine_loop import EngineLoop
from holotron.engine.grammar import GrammarState
from holotron.engine.images import PreparedImage
from holotron.engine.sampling import SamplingParams
from holotron.engine.session_state import SessionState
from holotron.engine.tasks import Event, StartEvent, Task

Emit = Callable[[int, Event | StartEvent], None]


@dataclass(eq=False)
class Submission:
    """A turn on its way to the engine's thread or under way there. Await it to know that the engine has taken it."""

    token_ids: Sequence[int]
    sampling: SamplingParams
    emit: Emit  # on the engine's thread, with the number of the choice
    session_id: str | None
    pool: str | None
    images: Sequence[tuple[int, PreparedImage]]
    grammar: GrammarState | None
    choices: int
    post: Callable[[Callable[[EngineLoop], None]], Future[None]]
    taken: Future[None] = field(init=False)
    _tasks: list[Task] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.taken = self.post(self._begin)

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self.taken).__await__()

    def cancel(self) -> None:
        """End every choice where it is, without waiting for it; a turn that has not begun ends as soon as it has."""
        self.post(self._end)

    def _end(self, core: EngineLoop) -> None:
        for task in self._tasks:
            core.cancel(task)

    def _begin(self, core: EngineLoop) -> None:
        """On the engine's thread: all choices, or an error and none."""
        context, known, cached = self._session(core)
        rest = self.token_ids[known:]
        images = [(offset - known, prepared) for offset, prepared in self.images if offset >= known]
        before = len(context.tokens)
        contexts = [context]
        tasks: list[Task] = []
        try:
            if self.choices > 1:
                core.check_length(before + len(rest) + self.sampling.max_tokens)
                core.append(context, rest, images)
                contexts += core.fork(context, self.choices - 1)
                rest, images = (), []
            for choice, target in enumerate(contexts):
                tasks.append(self._task(choice, target))
                core.submit(tasks[-1], rest, images)
        except Exception:
            for task in tasks:
                task.emit = _silent
                core.cancel(task)
            for target in contexts if self.session_id is None else contexts[1:]:
                core.close(target)
            raise
        self._tasks = tasks
        self.emit(0, StartEvent(before + len(self.token_ids) - known, cached))

    def _session(self, core: EngineLoop) -> tuple[SessionState, int, int]:
        """The session, how many of the tokens it has already, and how many of all need not be computed."""
        if self.session_id is not None:
            context = core.find(self.session_id)
            return context, 0, context.held
        keys = [(offset, prepared.key) for offset, prepared in self.images]
        context, known = core.continue_or_open(self.token_ids, keys, self.pool)
        return context, known, min(known, context.held)

    def _task(self, choice: int, context: SessionState) -> Task:
        sampling = self.sampling
        if choice and sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + choice)  # or every choice would say the same
        grammar = self.grammar.copy() if self.grammar is not None else None
        return Task(context, lambda _, event: self.emit(choice, event), sampling, grammar)


def _silent(*_: object) -> None:
    pass
