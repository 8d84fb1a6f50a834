"""The loop of the engine, one step at a time and without threads: choose work, run the model, sample, tell.

Everything here happens on one thread. `Engine` wraps it for callers on others.
"""

from __future__ import annotations

import logging
import random
import time
from array import array
from collections.abc import Iterable, Sequence
from uuid import uuid4

import torch
from torch import Tensor

from holotron.engine.config import EngineConfig
from holotron.engine.errors import EngineError, GenerationFailed, SessionBusy, SessionClosed, TooLong
from holotron.engine.images import ImageEncoder, ImageSpan, PreparedImage, check_places
from holotron.engine.memory_manager import MemoryManager
from holotron.engine.prefix import longest_match
from holotron.engine.runner import Piece, Runner
from holotron.engine.scheduler import Plan, Scheduler, at_image
from holotron.engine.session_state import OnUpdate, SessionState, Turn
from holotron.engine.tasks import Counters, FinishEvent, Task
from holotron.engine.token_sampler import TokenSampler
from holotron.model.model import Model

log = logging.getLogger(__name__)


class EngineLoop:
    """Sessions and their tasks on one device."""

    def __init__(self, model: Model, config: EngineConfig, sampler: TokenSampler | None = None) -> None:
        self.config = config
        self.model = model
        self.runner = Runner(model, config)
        self.residence = MemoryManager(self.runner, config)
        self.scheduler = Scheduler(config, self.residence)
        self.encoder = ImageEncoder(model, config.image_cache_bytes)
        self.sampler = sampler or TokenSampler(model.config)
        self.contexts: dict[str, SessionState] = {}
        self.tasks: list[Task] = []
        self.epoch = 0
        self.counters = Counters()
        self.asleep = False
        self._submitted = 0
        self._waiting_forks: dict[SessionState, list[SessionState]] = {}

    # ---- sessions ----

    def open(
        self,
        session_id: str | None = None,
        *,
        on_update: OnUpdate = OnUpdate.KEEP,
        keep_images: int | None = None,
        pool: str | None = None,
    ) -> SessionState:
        """A new, empty session."""
        session_id = session_id or uuid4().hex
        if session_id in self.contexts:
            raise EngineError(f"a session {session_id!r} exists already")
        if keep_images is not None and (self.model.config.uses_rope or not self.model.config.count("M")):
            raise EngineError(
                f"keep_images drops keys and values that the state remembers; {self.model.config.name} has rotary "
                "positions or no state, so that it would simply forget"
            )
        context = SessionState(session_id, on_update=on_update, keep_images=keep_images, pool=pool, epoch=self.epoch)
        self.contexts[session_id] = context
        return context

    def find(self, session_id: str) -> SessionState:
        if session_id not in self.contexts:
            raise SessionClosed(f"there is no session {session_id!r}: it was closed or never opened")
        return self.contexts[session_id]

    def append(
        self, context: SessionState, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]] = ()
    ) -> None:
        """Add tokens to the end; images come with the offset of their first token among these."""
        self._check_idle(context)
        vocabulary, vision = self.model.config.vocab_size, self.model.config.vision
        image_token = vision.image_token_id if vision else None  # it may lie beyond the vocabulary
        for i, token in enumerate(token_ids):
            if not 0 <= token < vocabulary and token != image_token:
                raise EngineError(f"token {i} is {token}; ids lie between 0 and {vocabulary - 1}")
        self.check_length(len(context.tokens) + len(token_ids))
        check_places(self.model.config, token_ids, images)
        start = len(context.tokens)
        context.tokens.extend(token_ids)
        context.images.extend(
            ImageSpan(start + offset, prepared.image.tokens, prepared.key, prepared.again, prepared)
            for offset, prepared in images
        )
        if token_ids:
            context.logits = None
        self.counters.appended_tokens += len(token_ids)

    def submit(
        self, task: Task, token_ids: Sequence[int] = (), images: Sequence[tuple[int, PreparedImage]] = ()
    ) -> None:
        """Append, and queue a task: both, or an error and neither. Its session takes nothing else until it is finished.

        Only a session that is being computed for its forks takes one task more, which follows by itself.
        """
        context = task.context
        if context.task is not None and context.task.is_fork and context.task.following is None and not context.closed:
            context.task.following = lambda: self._follow(task, token_ids, images)
            return
        self._check_idle(context)
        if task.sampling is not None:
            if not context.tokens and not token_ids:
                raise EngineError("there is nothing to continue: append at least one token before generating")
            self.check_length(len(context.tokens) + len(token_ids) + task.sampling.max_tokens)
        before, logits = len(context.tokens), context.logits
        task.held = context.held
        self.append(context, token_ids, images)
        # The turn's prompt begins after the last turn; with nothing appended the last answer goes on.
        task.start = context.turns[-1].end if context.turns else 0
        task.prompt_end = len(context.tokens)
        task.seed = random.getrandbits(62)
        try:
            self.sampler.begin(task, self.runner.device)
        except ValueError:
            context.truncate(before)
            context.logits = logits
            self.counters.appended_tokens -= len(token_ids)
            raise
        context.claimed = False
        self._submitted += 1
        task.number = self._submitted
        context.task = task
        self.tasks.append(task)

    def cancel(self, task: Task) -> None:
        """End a task where it is; what was generated stays in the session."""
        task.cancelled = True
        if task in self.tasks:
            self._finish(task, FinishEvent("cancelled", text=task.checker.flush() if task.checker else ""))

    def _follow(self, task: Task, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]]) -> None:
        if task.cancelled:
            task.emit(task, FinishEvent("cancelled"))
            return
        try:
            self.submit(task, token_ids, images)
        except ValueError as error:
            task.emit(task, FinishEvent("failed", error=error))

    def fork(self, parent: SessionState, count: int) -> list[SessionState]:
        """So many sessions that continue from here. What the parent has not computed yet is computed once, for all."""
        self._check_idle(parent)
        if count < 1:
            raise EngineError(f"cannot fork into {count} sessions; at least 1 is needed")
        children = [self._child(parent) for _ in range(count)]
        self.counters.forks += count
        if not parent.tokens:
            return children
        self._waiting_forks[parent] = children
        self.submit(Task(parent, emit=_silent, is_fork=True))
        return children

    def _child(self, parent: SessionState) -> SessionState:
        child = self.open(on_update=parent.on_update, keep_images=parent.keep_images, pool=parent.pool)
        child.tokens = array("i", parent.tokens)
        child.images = [span.copy() for span in parent.images]
        child.turns = list(parent.turns)
        child.epoch = parent.epoch
        child.waits_for = parent if parent.tokens else None
        return child

    def duplicate(self, source: SessionState) -> SessionState:
        """A session with the same tokens and a copy of the memory, as if it had computed them itself.

        Unlike a fork it shares no page. Where there is no room for the copy, the tokens are computed when it runs.
        """
        copy = self.open()
        copy.tokens.extend(source.tokens)
        self.residence.copy_into(source, copy, self._idle_besides(source, copy))
        return copy

    def rollback(self, context: SessionState, turn: int, *, keep_prompt: bool = False) -> None:
        """Forget the turn of that number and all after it; with keep_prompt only its answer, to generate it anew."""
        self._check_idle(context)
        turns = context.turns
        if not -len(turns) <= turn < len(turns):
            raise EngineError(f"there is no turn {turn}: the session has {len(turns)}")
        turn %= len(turns)
        position = turns[turn].prompt_end if keep_prompt else turns[turn].start
        del turns[turn:]
        context.truncate(position)
        self.residence.rewind(context, position)

    def park(self, context: SessionState) -> None:
        """Send the session's memory off the device now."""
        self._check_idle(context)
        if context.slot is not None:
            self.residence.send_away(context)

    def resume(self, context: SessionState) -> bool:
        """Bring the session's memory back ahead of its next turn; False if there is no room or nothing to bring."""
        self._check_idle(context)
        if context.parked is None or self.asleep:
            return context.slot is not None
        self.residence.spill.prefetch(context.parked)
        self.residence.secure(context, 0, iter(()))
        return context.slot is not None

    def close(self, context: SessionState) -> None:
        """Forget the session. Closing twice is no error."""
        if context.closed:
            return
        context.closed = True
        if context.task is not None:
            self.cancel(context.task)
        self._release_forks(context)
        self.residence.discard(context)
        self.contexts.pop(context.id, None)

    def match(
        self,
        token_ids: Sequence[int],
        image_keys: Sequence[tuple[int, bytes]] = (),
        pool: str | None = None,
        *,
        any_epoch: bool = False,
    ) -> tuple[SessionState, int] | None:
        """The idle session of the pool that has computed the longest beginning of these tokens, and how much of it.

        What other weights have computed is passed over, unless with any_epoch.
        """
        idle = (
            context
            for context in self.contexts.values()
            if context.pool == pool
            and context.task is None
            and context.waits_for is None
            and not context.claimed
            and (any_epoch or context.epoch == self.epoch)
        )
        return longest_match(token_ids, image_keys, idle)

    def continue_or_open(
        self,
        token_ids: Sequence[int],
        image_keys: Sequence[tuple[int, bytes]] = (),
        pool: str | None = None,
        *,
        any_epoch: bool = False,
    ) -> tuple[SessionState, int]:
        """A session that goes on with the rest of these tokens, and how many of them it has already."""
        found = self.match(token_ids, image_keys, pool, any_epoch=any_epoch)
        if found is None:
            return self.open(pool=pool), 0
        context, position = found
        if self._ends_alike(context, position, token_ids):
            position = len(context.tokens)
            del context.turns[_turns_before(context, position) :]
        else:
            context = self.branch(context, position)
        context.claimed = True  # else a second request like this one could be given the same session
        return context, position

    def _ends_alike(self, context: SessionState, position: int, token_ids: Sequence[int]) -> bool:
        """Whether all that the context has besides are the last tokens of its answer, and the request has them too."""
        if position != context.computed or context.held == position or at_image(context):
            return False
        return list(context.tokens[position:]) == list(token_ids[position : len(context.tokens)])

    def branch(self, context: SessionState, position: int) -> SessionState:
        """A session that stands at `position` of this one: itself if it stands there, else a fork of that beginning."""
        if position == context.computed:
            self.counters.appended_tokens -= context.uncomputed  # the request brings them again
            context.truncate(position)
            del context.turns[_turns_before(context, position) :]
            return context
        child = self._child(context)
        child.waits_for = None
        child.truncate(position)
        del child.turns[_turns_before(context, position) :]
        self.residence.fork_at(context, child, position, self._idle_besides(context, child))
        return child

    def _check_idle(self, context: SessionState) -> None:
        if context.closed:
            raise SessionClosed(f"the session {context.id!r} is closed")
        if context.task is not None:
            raise SessionBusy(f"the session {context.id!r} is at work; wait for it or cancel it")

    @property
    def max_length(self) -> int:
        """The tokens that a session can have at most."""
        if not self.model.config.count("*"):
            return self.config.max_context
        return min(self.config.max_context, (self.config.pages - 1) * self.config.page_size)

    def check_length(self, tokens: int) -> None:
        if tokens > self.max_length:
            raise TooLong(
                f"{tokens} tokens are more than the {self.max_length} that fit here; shorten the session or give the "
                "engine more pages and a larger max_context"
            )

    # ---- a step ----

    def step(self) -> bool:
        """Advance every session that can run by one piece or token; False when there was nothing to do."""
        if self.asleep:
            return False
        plan = self.scheduler.plan(self.tasks, self.contexts.values(), self.counters.steps)
        if not plan:
            return False
        self.counters.steps += 1
        try:
            finished, logits_SV = self._run(plan)
        except Exception as error:
            self._recover(plan, error)
            return True
        try:
            self._sample(finished, logits_SV)
        except Exception as error:
            log.exception("sampling failed")
            for task in [task for task in finished if task in self.tasks]:
                self._fail(task, error)
        return True

    def _run(self, plan: Plan) -> tuple[list[Task], Tensor]:
        """The model over the plan; the tasks whose context is now computed to its end, and their logits."""
        finished: list[Task] = []
        parts: list[Tensor] = []
        if plan.ready:
            finished = list(plan.ready)
            parts = [task.context.logits[None] for task in plan.ready if task.context.logits is not None]
        if plan.steps or plan.pieces:
            self._begin_pieces(plan.pieces)
            pieces = [Piece(task.context, count) for task, count in plan.pieces]
            logits_SV = self.runner.run([task.context for task in plan.steps], pieces)
            for task in plan.steps:
                task.context.computed += 1
            finished += plan.steps
            rows = list(range(len(plan.steps)))
            for row, (task, count) in enumerate(plan.pieces, len(plan.steps)):
                task.context.computed += count
                if task.context.uncomputed == 0:
                    finished.append(task)
                    rows.append(row)
            self.counters.computed_tokens += len(plan.steps) + sum(count for _, count in plan.pieces)
            parts.append(logits_SV if len(rows) == len(logits_SV) else logits_SV[rows])
            self._end_pieces(plan.pieces)
        return finished, parts[0] if len(parts) == 1 else torch.cat(parts)

    def _begin_pieces(self, pieces: list[tuple[Task, int]]) -> None:
        self._encode_images(pieces)
        for task, _ in pieces:
            if not task.context.computed:
                task.context.epoch = self.epoch  # its whole memory is these weights' work
            if not task.begun:
                self.residence.checkpoint(task.context)
            task.begun = True

    def _end_pieces(self, pieces: list[tuple[Task, int]]) -> None:
        for task, _ in pieces:
            for span in task.context.images:
                if span.end <= task.context.computed:
                    span.embeddings = None
            if task.context.keep_images is not None:
                self.residence.drop_old_images(task.context)

    def _encode_images(self, pieces: list[tuple[Task, int]]) -> None:
        spans = [
            span
            for task, count in pieces
            for span in task.context.images
            if span.embeddings is None
            and span.start < task.context.computed + count
            and span.end > task.context.computed
        ]
        if spans:
            self.encoder.encode(spans)

    def _sample(self, finished: list[Task], logits_SV: Tensor) -> None:
        drawing = finished
        if any(task.generated == 0 for task in finished):
            drawing = [task for task in finished if task.sampling is not None]
            rows = [i for i, task in enumerate(finished) if task.sampling is not None]
            for task, logits_V in zip(finished, logits_SV, strict=True):
                if task.generated == 0:
                    self._end_prompt(task, logits_V)
            if len(rows) < len(finished):
                logits_SV = logits_SV[rows]
        if not drawing:
            return
        for task, outcome in zip(drawing, self.sampler.draw(drawing, logits_SV), strict=True):
            context = task.context
            context.logits = None
            if outcome.error is not None:
                self._fail(task, GenerationFailed(outcome.error))
                continue
            context.tokens.extend(outcome.token_ids)
            task.generated += len(outcome.token_ids)
            self.counters.generated_tokens += len(outcome.token_ids)
            task.emit(task, outcome.event(self.epoch))
            if outcome.finish is not None:
                self._finish(task, outcome.finish)

    def _end_prompt(self, task: Task, logits_V: Tensor) -> None:
        """What was given is computed: remember the place, and if that was all, let forks have it."""
        context = task.context
        if self.config.checkpoints or task.sampling is None:
            context.logits = logits_V.clone()  # not a view: the next step may write over it
            self.residence.checkpoint(context)
        if task.sampling is None:
            self._release_forks(context)
            self._finish(task, FinishEvent("computed"))

    def _finish(self, task: Task, event: FinishEvent) -> None:
        self.tasks.remove(task)
        context = task.context
        context.task = None
        if task.sampling is not None:
            context.turns.append(Turn(task.start, task.prompt_end, len(context.tokens)))
        else:
            self._release_forks(context)
        if context.pool is not None:
            context.left_at = time.monotonic()
        task.emit(task, event)
        if task.following is not None:
            task.following()

    def _fail(self, task: Task, error: Exception) -> None:
        self.counters.failures += 1
        self._finish(task, FinishEvent("failed", error=error))

    def _recover(self, plan: Plan, error: Exception) -> None:
        """A step that broke: nobody's memory is trusted any more, and everybody is tried again alone."""
        tasks = [*plan.ready, *plan.steps, *(task for task, _ in plan.pieces)]
        log.warning("a step with %d sessions failed: %s", len(tasks), error, exc_info=error)
        for task in tasks:
            self.residence.forget(task.context)
            if task.alone or len(tasks) == 1:
                self._fail(task, error)
            else:
                task.alone = True

    def abandon(self, error: Exception) -> None:
        """After a mistake of the loop itself: every task fails, and what its session remembers is not trusted."""
        for task in list(self.tasks):
            self.residence.forget(task.context)
            self._fail(task, error)

    def _release_forks(self, parent: SessionState) -> None:
        """Give waiting forks the parent's memory; those that get none compute for themselves."""
        for child in self._waiting_forks.pop(parent, []):
            child.waits_for = None
            if child.closed or parent.slot is None or parent.uncomputed or parent.logits is None:
                continue
            if child.tokens[: len(parent.tokens)] != parent.tokens:
                continue
            self.residence.fork_into(parent, child, self._idle_besides(parent, child))

    def _idle_besides(self, *kept: SessionState) -> Iterable[SessionState]:
        idle = [c for c in self.contexts.values() if c.task is None and c.slot is not None and c not in kept]
        return iter(sorted(idle, key=lambda c: c.last_used))

    # ---- weights and sleep ----

    def new_epoch(self) -> None:
        """After the weights changed: sessions keep, lose or leave what they remember, as each of them asked for."""
        self.epoch += 1
        self.encoder.forget()
        for context in list(self.contexts.values()):
            for span in context.images:
                span.embeddings = None
            if context.on_update is OnUpdate.DROP and context.task is None:
                self.close(context)
            elif context.on_update is not OnUpdate.KEEP:
                self.residence.forget(context)
                context.epoch = self.epoch

    def sleep(self, *, weights: bool = False) -> None:
        """Send every session away and give the device's memory back; with `weights` the model waits in host memory."""
        if not self.asleep and self.tasks:
            raise SessionBusy(f"{len(self.tasks)} sessions are at work; wait for them or cancel them before sleeping")
        self.asleep = True
        self.encoder.forget()
        self.residence.evacuate(self.contexts.values(), weights=weights)

    def wake(self) -> None:
        """Take the memory again; sessions come back when they run."""
        if self.asleep:
            self.residence.reopen()
            self.asleep = False

    def check(self) -> None:
        """The invariants that hold between steps; for tests."""
        self.residence.check(self.contexts.values())
        for context in self.contexts.values():
            assert (context.task is not None) == any(task.context is context for task in self.tasks)


def _turns_before(context: SessionState, position: int) -> int:
    return sum(turn.end <= position for turn in context.turns)


def _silent(*_: object) -> None:
    pass
