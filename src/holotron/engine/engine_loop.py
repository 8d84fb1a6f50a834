"""The loop of the engine, one step at a time and without threads: choose work, run the model, sample, tell.

Everything here happens on one thread. `Engine` wraps it for callers on others.
"""

from __future__ import annotations

import logging
import random
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from holotron.engine.config import EngineConfig
from holotron.engine.drawn_tokens import UnreadTokens, may_wait
from holotron.engine.errors import EngineError, SessionBusy
from holotron.engine.images import ImageEncoder, ImageSpan, PreparedImage
from holotron.engine.memory_manager import MemoryManager
from holotron.engine.prompt_scorer import PromptScorer
from holotron.engine.requests import FinishEvent, GenerationRequest, PromptEvent
from holotron.engine.runner import PrefillChunk, Runner
from holotron.engine.scheduler import Plan, Scheduler
from holotron.engine.session_registry import SessionRegistry
from holotron.engine.session_state import OnUpdate, SessionState, Turn
from holotron.engine.token_sampler import SampledStep, TokenSampler
from holotron.model.model import Model

log = logging.getLogger(__name__)


class EngineLoop(SessionRegistry):
    """Sessions and their requests on one device."""

    def __init__(self, model: Model, config: EngineConfig, sampler: TokenSampler | None = None) -> None:
        super().__init__(model, config)
        self.runner = Runner(model, config)
        self.memory = MemoryManager(self.runner, config)
        self.scheduler = Scheduler(config, self.memory)
        self.encoder = ImageEncoder(model, config.image_cache_bytes, cuda_graphs=config.cuda_graphs)
        self.sampler = sampler or TokenSampler(model.config)
        self.requests: list[GenerationRequest] = []
        self.asleep = False
        self._submitted = 0
        self._drawn: UnreadTokens | None = None
        self._began: tuple[float, int] | None = None  # of the last step: when, and its tokens of prompts
        self.reads_late = config.reads_late
        self._waiting_forks: dict[SessionState, list[SessionState]] = {}

    # ---- sessions ----

    def submit(
        self,
        request: GenerationRequest,
        token_ids: Sequence[int] = (),
        images: Sequence[tuple[int, PreparedImage]] = (),
    ) -> None:
        """Append, and queue a request: both, or an error and neither. Its session takes nothing else until its end.

        Only a session that is being computed for its forks takes one request more, which follows by itself.
        """
        session = request.session
        if (
            session.request is not None
            and session.request.is_fork
            and session.request.following is None
            and not session.closed
        ):
            session.request.following = lambda: self._follow(request, token_ids, images)
            return
        self.check_idle(session)
        if request.sampling is not None:
            if not session.tokens and not token_ids:
                raise EngineError("there is nothing to continue: append at least one token before generating")
            self.check_length(len(session.tokens) + len(token_ids), request.sampling.max_tokens)
        before, logits = len(session.tokens), session.logits
        self.append(session, token_ids, images)
        # The turn's prompt begins after the last turn; with nothing appended the last answer goes on.
        request.start = session.turns[-1].end if session.turns else 0
        request.prompt_end = len(session.tokens)
        request.seed = random.getrandbits(62)
        try:
            self.sampler.begin(request, self.runner.device)
        except ValueError:
            session.truncate(before)
            session.logits = logits
            self.counters.appended_tokens -= len(token_ids)
            raise
        session.claimed = False
        self._submitted += 1
        request.number = self._submitted
        request.submitted_at = time.monotonic()
        session.request = request
        self.requests.append(request)

    def cancel(self, request: GenerationRequest) -> None:
        """End a request where it is; what was generated stays in the session."""
        self.settle()
        request.cancelled = True
        if request in self.requests:
            self._finish(request, FinishEvent("cancelled", text=request.checker.flush() if request.checker else ""))

    def _follow(
        self, request: GenerationRequest, token_ids: Sequence[int], images: Sequence[tuple[int, PreparedImage]]
    ) -> None:
        if request.cancelled:
            request.emit(request, FinishEvent("cancelled"))
            return
        try:
            self.submit(request, token_ids, images)
        except ValueError as error:
            request.emit(request, FinishEvent("failed", error=error))

    def fork(self, parent: SessionState, count: int) -> list[SessionState]:
        """So many sessions that continue from here. What the parent has not computed yet is computed once, for all."""
        self.check_idle(parent)
        if count < 1:
            raise EngineError(f"cannot fork into {count} sessions; at least 1 is needed")
        children = [self.new_child(parent) for _ in range(count)]
        self.counters.forks += count
        if not parent.tokens:
            return children
        self._waiting_forks[parent] = children
        self.submit(GenerationRequest(parent, emit=_silent, is_fork=True))
        return children

    def fork_after(self, parent: SessionState, turns: int) -> SessionState:
        """A session as the parent was after its first so many turns; what no checkpoint holds is computed again."""
        self.check_idle(parent)
        if not 0 <= turns <= len(parent.turns):
            raise EngineError(f"there are no {turns} turns: the session has {len(parent.turns)}")
        child = self.new_child(parent)
        child.waits_for = None
        self.counters.forks += 1
        position = parent.turns[turns - 1].end if turns else 0
        child.truncate(position)
        del child.turns[turns:]
        known = [p for p in parent.resume_positions(self.memory.has_state) if 0 < p <= position]
        if known:
            self.memory.fork_at(parent, child, max(known), self.idle_besides(parent, child))
        return child

    def new_child(self, parent: SessionState) -> SessionState:
        """A session with the parent's tokens and none of its memory yet."""
        child = self.open(on_update=parent.on_update, keep_images=parent.keep_images, pool=parent.pool)
        child.adapter = parent.adapter
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
        copy.adapter = source.adapter
        copy.tokens.extend(source.tokens)
        copy.images = [span.copy() for span in source.images]
        self.memory.copy_into(source, copy, self.idle_besides(source, copy))
        return copy

    def rollback(self, session: SessionState, turn: int, *, keep_prompt: bool = False) -> None:
        """Remove the turn of that number and all after it; with keep_prompt only its answer, to generate it anew."""
        self.check_idle(session)
        turns = session.turns
        if not -len(turns) <= turn < len(turns):
            raise EngineError(f"there is no turn {turn}: the session has {len(turns)}")
        turn %= len(turns)
        position = turns[turn].prompt_end if keep_prompt else turns[turn].start
        del turns[turn:]
        session.truncate(position)
        self.memory.rewind(session, position)

    def park(self, session: SessionState) -> None:
        """Evict the session's memory from the device now."""
        self.check_idle(session)
        if session.slot is not None:
            self.memory.evict(session)

    def resume(self, session: SessionState) -> bool:
        """Bring the session's memory back ahead of its next turn; False if there is no room or nothing to bring."""
        self.check_idle(session)
        if session.offloaded is None or self.asleep:
            return session.slot is not None
        self.memory.offload_store.prefetch(session.offloaded)
        self.memory.secure(session, 0, iter(()))
        return session.slot is not None

    def close(self, session: SessionState) -> None:
        """Close the session and free its memory. Closing twice is no error."""
        if session.closed:
            return
        session.closed = True
        if session.request is not None:
            self.cancel(session.request)
        self._release_forks(session)
        self.memory.free(session)
        self.sessions.pop(session.id, None)

    # ---- a step ----

    def step(self) -> bool:
        """Advance every session that can run by one chunk or token; False when there was nothing to do."""
        if self.asleep:
            return False
        plan = self.scheduler.plan(self.requests, self.sessions.values(), self.counters.steps)
        is_ready = bool(plan.decode) and self.runner.is_recorded([request.session for request in plan.decode])
        if self._drawn and (plan.prefill or plan.ready or not is_ready):
            self.settle()  # neither prompts nor a recording begin beside unread tokens
            plan = plan.still_asked_for()
            if not plan:
                return True
        if not plan:
            self._began = None
            return False
        began, before = time.monotonic(), self._began
        if before is not None:
            self.scheduler.pace.took(began - before[0], before[1])
        self._began = (began, sum(count for _, count in plan.prefill))
        self.counters.steps += 1
        try:
            finished, logits_SV = self._run(plan)
            self.settle()  # while the device is at work
        except Exception as error:
            self._recover(plan, error)
            return True
        try:
            self._sample(finished, logits_SV)
        except Exception as error:
            log.exception("sampling failed")
            for request in [request for request in finished if request in self.requests]:
                self._fail(request, error)
        return True

    def settle(self) -> None:
        """Read the tokens that were drawn last, so that every session's tokens are known."""
        drawn, self._drawn = self._drawn, None
        if drawn is None:
            return
        try:
            outcomes = self.sampler.outcomes(drawn.requests, drawn.draw.read())
        except Exception as error:
            log.exception("drawn tokens could not be read")
            outcomes = [SampledStep(error=error)] * len(drawn.requests)
        for request, outcome in zip(drawn.requests, outcomes, strict=True):
            session = request.session
            if outcome.error is not None:
                session.tokens.pop()
                self.memory.free(session, recompute=True)
                self._fail(request, outcome.error)
                continue
            session.tokens[-1:] = array("i", outcome.token_ids)
            self._gain(request, outcome)

    def _run(self, plan: Plan) -> tuple[list[GenerationRequest], Tensor]:
        """The model over the plan; the requests whose session is now computed to its end, and their logits."""
        finished = list(plan.ready)
        parts = [request.session.logits[None] for request in plan.ready if request.session.logits is not None]
        if plan.decode or plan.prefill:
            self._begin_prefill(plan.prefill)
            prefill = [PrefillChunk(request.session, count, _scorer(request)) for request, count in plan.prefill]
            decode = [request.session for request in plan.decode]
            logits_SV = self.runner.run(decode, prefill, self._drawn)
            for request in plan.decode:
                request.session.computed += 1
            finished += plan.decode
            rows = list(range(len(plan.decode)))
            for row, (request, count) in enumerate(plan.prefill, len(plan.decode)):
                request.session.computed += count
                if request.session.uncomputed == 0:
                    finished.append(request)
                    rows.append(row)
            self.counters.computed_tokens += len(plan.decode) + sum(count for _, count in plan.prefill)
            parts.append(logits_SV if len(rows) == len(logits_SV) else logits_SV[rows])
            self._end_prefill(plan.prefill)
        return finished, parts[0] if len(parts) == 1 else torch.cat(parts)

    def _begin_prefill(self, prefill: list[tuple[GenerationRequest, int]]) -> None:
        self._encode_images(prefill)
        for request, _ in prefill:
            if not request.session.computed:
                request.session.epoch = self.epoch  # its whole memory is these weights' work
            if not request.begun:
                self.memory.checkpoint(request.session, self._left_behind())
                request.begun_at = time.monotonic()
            request.begun = True

    def _end_prefill(self, prefill: list[tuple[GenerationRequest, int]]) -> None:
        for request, _ in prefill:
            for span in request.session.images:
                if span.end <= request.session.computed:
                    span.embeddings = None
            if request.session.keep_images is not None:
                self.memory.drop_old_images(request.session)

    def _encode_images(self, prefill: list[tuple[GenerationRequest, int]]) -> None:
        by_adapter: dict[int, list[ImageSpan]] = {}
        for request, count in prefill:
            session = request.session
            for span in session.images:
                wanted = span.start < session.computed + count and span.end > session.computed
                if span.embeddings is None and wanted:
                    adapter = self.model.adapters.seen_by(session.adapter) if self.model.adapters else 0
                    by_adapter.setdefault(adapter, []).append(span)
        for adapter, spans in by_adapter.items():
            self.encoder.encode(spans, adapter)

    def _sample(self, finished: list[GenerationRequest], logits_SV: Tensor) -> None:
        rows = [row for row, request in enumerate(finished) if request.session.request is request]
        if len(rows) < len(finished):
            for request, logits_V in zip(finished, logits_SV, strict=True):
                if request.session.request is None and not request.session.uncomputed:
                    request.session.logits = logits_V.clone()  # the token that it ran on was its last one
            finished, logits_SV = [finished[row] for row in rows], logits_SV[rows]
        drawing = finished
        if any(request.generated == 0 for request in finished):
            drawing = [request for request in finished if request.sampling is not None]
            rows = [i for i, request in enumerate(finished) if request.sampling is not None]
            for request, logits_V in zip(finished, logits_SV, strict=True):
                if request.generated == 0:
                    self._end_prompt(request, logits_V)
            if len(rows) < len(finished):
                logits_SV = logits_SV[rows]
        if not drawing:
            return
        takes_prompts = self.scheduler.takes_prompts(self.requests, self.counters.steps)
        if self.reads_late and not takes_prompts and all(map(may_wait, drawing)):
            self._drawn = UnreadTokens(drawing, self.sampler.draw_plainly(logits_SV))
            return
        for request, outcome in zip(drawing, self.sampler.draw(drawing, logits_SV), strict=True):
            session = request.session
            session.logits = None
            if outcome.error is not None:
                self._fail(request, outcome.error)
                continue
            session.tokens.extend(outcome.token_ids)
            request.generated += len(outcome.token_ids)
            self._gain(request, outcome)

    def _gain(self, request: GenerationRequest, outcome: SampledStep) -> None:
        """Tell what a session has gained."""
        self.counters.generated_tokens += len(outcome.token_ids)
        request.emit(request, outcome.event(self.epoch))
        if outcome.finish is not None:
            self._finish(request, outcome.finish)

    def _end_prompt(self, request: GenerationRequest, logits_V: Tensor) -> None:
        """What was given is computed: remember the place, and if that was all, let forks have it."""
        session = request.session
        request.prompted_at = time.monotonic()
        request.begun_at = request.begun_at or request.prompted_at
        if self.config.checkpoints or request.sampling is None:
            session.logits = logits_V.clone()  # not a view: the next step may write over it
            self.memory.checkpoint(session, self._left_behind())
        if request.sampling is None:
            self._release_forks(session)
            self._finish(request, FinishEvent("computed"))
        elif request.emit_prompt is not None and request.sampling.prompt_logprobs is not None:
            positions = range(request.start, request.prompt_end)
            request.emit_prompt(PromptEvent(tuple(map(request.prompt_logprobs.get, positions))))

    def _finish(self, request: GenerationRequest, event: FinishEvent) -> None:
        self.requests.remove(request)
        session = request.session
        session.request = None
        if request.sampling is not None:
            self.scheduler.pace.ended()
            session.turns.append(Turn(request.start, request.prompt_end, len(session.tokens)))
        else:
            self._release_forks(session)
        if session.pool is not None:
            session.left_at = time.monotonic()
        request.emit(request, replace(event, seconds=request.seconds(time.monotonic())))
        if request.following is not None:
            request.following()

    def _fail(self, request: GenerationRequest, error: Exception) -> None:
        self.counters.failures += 1
        self._finish(request, FinishEvent("failed", error=error))

    def _recover(self, plan: Plan, error: Exception) -> None:
        """A step failed: the memory of its sessions is not trusted any more, and each of them is tried again alone."""
        if self._drawn:
            self.reads_late = False
            log.warning("a step failed beside unread tokens; from now on tokens are read before the next step begins")
        self.settle()
        plan = plan.still_asked_for()
        requests = [*plan.ready, *plan.decode, *(request for request, _ in plan.prefill)]
        log.warning("a step with %d sessions failed: %s", len(requests), error, exc_info=error)
        for request in requests:
            self.memory.free(request.session, recompute=True)
            if request.alone or len(requests) == 1:
                self._fail(request, error)
            else:
                request.alone = True

    def abandon(self, error: Exception) -> None:
        """After a mistake of the loop itself: every request fails, and what its session remembers is not trusted."""
        self.settle()
        for request in list(self.requests):
            self.memory.free(request.session, recompute=True)
            self._fail(request, error)

    def _release_forks(self, parent: SessionState) -> None:
        """Give waiting forks the parent's memory; those that get none compute for themselves."""
        for child in self._waiting_forks.pop(parent, []):
            child.waits_for = None
            if child.closed or parent.slot is None or parent.uncomputed or parent.logits is None:
                continue
            if child.tokens[: len(parent.tokens)] != parent.tokens:
                continue
            self.memory.fork_into(parent, child, self.idle_besides(parent, child))

    def idle_besides(self, *kept: SessionState) -> Iterable[SessionState]:
        idle = [c for c in self.sessions.values() if c.request is None and c.slot is not None and c not in kept]
        return iter(sorted(idle, key=lambda c: c.last_used))

    def _left_behind(self) -> Iterator[SessionState]:
        """Idle sessions of requests that have none, the one left longest ago first."""
        idle = [(c.left_at, c) for c in self.sessions.values() if c.left_at is not None and c.request is None]
        yield from (session for _, session in sorted(idle, key=lambda pair: pair[0]) if not session.claimed)

    # ---- weights and sleep ----

    def new_epoch(self, epoch: int | None = None) -> None:
        """After the weights changed: sessions keep, lose or leave what they remember, as each of them asked for."""
        self.settle()
        self.epoch = self.epoch + 1 if epoch is None else epoch
        self.encoder.clear()
        for session in list(self.sessions.values()):
            for span in session.images:
                span.embeddings = None
            if session.on_update is OnUpdate.DROP and session.request is None:
                self.close(session)
            elif session.on_update is not OnUpdate.KEEP:
                self.memory.free(session, recompute=True)
                session.epoch = self.epoch

    def forget_graphs(self) -> None:
        """After layers were replaced or moved, what was recorded of them is recorded again."""
        self.runner.forget_graphs()
        self.encoder.graphs.clear()

    def retract(self) -> None:
        """Free the memory of every session at work; its tokens are computed again when it goes on."""
        self.settle()
        for request in self.requests:
            self.memory.free(request.session, recompute=True)

    def sleep(self, *, weights: bool = False) -> None:
        """Evict every session and give the device's memory back; with `weights` the model waits in host memory."""
        if not self.asleep and self.requests:
            raise SessionBusy(
                f"{len(self.requests)} sessions are at work; wait for them or cancel them before sleeping"
            )
        self.asleep = True
        self.encoder.clear()
        self.forget_graphs()
        self.memory.evict_all(self.sessions.values(), weights=weights)

    def wake(self) -> None:
        """Take the memory again; sessions come back when they run."""
        if self.asleep:
            self.memory.reopen()
            self.asleep = False


def _scorer(request: GenerationRequest) -> PromptScorer | None:
    return PromptScorer(request) if request.sampling and request.sampling.prompt_logprobs is not None else None


def _silent(*_: object) -> None:
    pass
