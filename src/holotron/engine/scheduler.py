"""Which sessions take part in a step, and with how much."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from holotron.engine.pace import SMALLEST_PIECE, Pace, SchedulerConfig
from holotron.engine.requests import GenerationRequest
from holotron.engine.session_state import SessionState


@dataclass(frozen=True)
class Plan:
    """The work of one step: sessions that only sample, that decode one token, and that prefill a chunk."""

    ready: list[GenerationRequest]
    decode: list[GenerationRequest]
    prefill: list[tuple[GenerationRequest, int]]

    def __bool__(self) -> bool:
        return bool(self.ready or self.decode or self.prefill)

    def still_asked_for(self) -> Plan:
        """Without requests that have ended since."""
        ready, decode = ([r for r in requests if r.session.request is r] for requests in (self.ready, self.decode))
        return Plan(ready, decode, [(r, count) for r, count in self.prefill if r.session.request is r])


class SessionRoom(Protocol):
    """What a scheduler must know of memory; `MemoryManager` has it."""

    def has_room_for_one(self, session: SessionState, /) -> bool: ...

    def secure(self, session: SessionState, new_tokens: int, victims: Iterable[SessionState], /) -> bool: ...

    def rewind(self, session: SessionState, position: int, /) -> None: ...


class Scheduler:
    """First come, first served. Sessions that decode ride along with prompts, so that neither waits long."""

    def __init__(self, config: SchedulerConfig, memory: SessionRoom) -> None:
        self._config = config
        self._memory = memory
        self._last_prefill = 0  # the step that took up prompts last
        self._has_target = config.target_step_latency is not None
        self.pace = Pace(config)

    def plan(self, requests: list[GenerationRequest], sessions: Collection[SessionState], step: int) -> Plan:
        """The work of the next step. Sessions in it are on the device, with room for what they bring."""
        plan = self._plan(requests, sessions, step)
        if not plan and requests:  # nothing decodes that prompts would have to wait for
            plan = self._plan(requests, sessions, step, paced=False)
        if plan:
            for request, _ in plan.prefill:
                self._last_prefill = step
                if not request.begun:
                    self.pace.began(min(request.session.uncomputed, self._config.prefill_tokens))
            self.pace.step(len(requests), len(plan.decode), [count for _, count in plan.prefill])
        return plan

    def takes_prompts(self, requests: list[GenerationRequest], step: int) -> bool:
        """Whether a step may have more to do than decode."""
        decoding = _count_decoding(requests)
        return any(not request.generated and self._may_prefill(request, step, decoding) for request in requests)

    def _may_prefill(self, request: GenerationRequest, step: int, decoding: int) -> bool:
        every = self._config.prefill_every
        if every:
            return step - self._last_prefill >= every
        is_forced = request.generated > 0 and request.session.uncomputed <= SMALLEST_PIECE  # a grammar's tokens
        return is_forced or self.pace.allows(decoding, begun=request.begun)

    def _due(self, request: GenerationRequest) -> float:
        """When its prompt should be done."""
        return request.submitted_at + self.pace.patience(request.session.uncomputed)

    def _plan(
        self, requests: list[GenerationRequest], sessions: Collection[SessionState], step: int, *, paced: bool = True
    ) -> Plan:
        plan = Plan([], [], [])
        budget = most = self.pace.budget
        decoding = _count_decoding(requests)
        alone = next((request for request in requests if request.alone), None)
        chosen: set[SessionState] = set()
        full = False
        by_time = sorted(requests, key=self._due) if self._has_target else requests
        for request in [alone] if alone else by_time:
            session = request.session
            if session.waits_for is not None:
                continue
            if request.generated and self._memory.has_room_for_one(session) and session.uncomputed == 1:
                if len(plan.decode) < self._config.max_running:  # what nearly every session does in nearly every step
                    session.last_used = step
                    chosen.add(session)
                    plan.decode.append(request)
                continue
            if session.uncomputed == 0 and session.logits is None:
                self._memory.rewind(session, session.computed - 1)  # the logits are gone: its last token runs again
            count = uncomputed = session.uncomputed
            is_prefill = count > 1 or at_image(session)
            if is_prefill:
                may_prefill = not paced or self._may_prefill(request, step, decoding)
                count = self._chunk(count, budget, most) if may_prefill else 0
            if count == 0 if is_prefill else len(plan.decode) == self._config.max_running:
                continue
            if full and session.slot is None:
                continue
            if not self._memory.secure(session, count, _victims(request, chosen, requests, sessions)):
                # Later requests may evict even fewer sessions: there is no point in asking again in this step.
                on_its_way = session.arrival is not None or (
                    session.offloaded is not None and session.offloaded.on_disk
                )
                full = full or not on_its_way
                continue
            if session.uncomputed != uncomputed:
                continue  # what it remembered was lost, so that it has more to do than this plan knows
            chosen.add(session)
            session.last_used = step
            if is_prefill:
                plan.prefill.append((request, count))
                budget -= count
            elif count:
                plan.decode.append(request)
            else:
                plan.ready.append(request)
        return plan

    @staticmethod
    def _chunk(uncomputed: int, budget: int, most: int) -> int:
        """How many of these tokens go into this step. A prompt that fits into a step is not cut.

        Cutting what need not be cut makes many odd sizes, for each of which library kernels plan anew, and reads a
        session's history twice.
        """
        if uncomputed <= budget:
            return uncomputed
        return 0 if uncomputed <= most else budget


def _count_decoding(requests: list[GenerationRequest]) -> int:
    return sum(request.generated > 0 for request in requests)


def _victims(
    request: GenerationRequest,
    chosen: set[SessionState],
    requests: list[GenerationRequest],
    sessions: Collection[SessionState],
) -> Iterator[SessionState]:
    """Whose memory may go for this request: idle sessions, least recently used first, then requests that came later."""
    idle = [c for c in sessions if c.request is None and c.waits_for is None and c.slot is not None]
    yield from sorted(idle, key=lambda c: c.last_used)
    for other in reversed(requests):
        if other.number <= request.number:
            return
        if other.session.slot is not None and other.session not in chosen:
            yield other.session


def at_image(session: SessionState) -> bool:
    """Whether the next token stands for a part of an image."""
    return bool(session.uncomputed) and any(span.start <= session.computed < span.end for span in session.images)
