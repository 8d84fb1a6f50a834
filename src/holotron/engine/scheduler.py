"""Which sessions take part in a step, and with how much."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from holotron.engine.config import EngineConfig
from holotron.engine.memory_manager import MemoryManager
from holotron.engine.session_state import SessionState
from holotron.engine.tasks import Task


@dataclass(frozen=True)
class Plan:
    """The work of one step: sessions that only sample, that bring one token, and that bring a piece."""

    ready: list[Task]
    steps: list[Task]
    pieces: list[tuple[Task, int]]

    def __bool__(self) -> bool:
        return bool(self.ready or self.steps or self.pieces)


class Scheduler:
    """First come, first served. Sessions that bring one token ride along with prompts, so that neither waits long."""

    def __init__(self, config: EngineConfig, residence: MemoryManager) -> None:
        self._config = config
        self._residence = residence

    def plan(self, tasks: list[Task], contexts: Collection[SessionState], step: int) -> Plan:
        """The work of the next step. Contexts that are in it are on the device, with room for what they bring."""
        plan = Plan([], [], [])
        budget = self._config.prefill_tokens
        alone = next((task for task in tasks if task.alone), None)
        chosen: set[SessionState] = set()
        full = False
        for task in [alone] if alone else tasks:
            context = task.context
            if context.waits_for is not None:
                continue
            if task.generated and self._residence.has_room_for_one(context) and context.uncomputed == 1:
                if len(plan.steps) < self._config.max_running:  # what nearly every session does in nearly every step
                    context.last_used = step
                    chosen.add(context)
                    plan.steps.append(task)
                continue
            if context.uncomputed == 0 and context.logits is None:
                self._residence.rewind(context, context.computed - 1)  # the logits are gone: its last token runs again
            count = uncomputed = context.uncomputed
            is_piece = count > 1 or at_image(context)
            if is_piece:
                count = self._piece(count, budget)
            if count == 0 if is_piece else len(plan.steps) == self._config.max_running:
                continue
            if full and context.slot is None:
                continue
            if not self._residence.secure(context, count, _victims(task, chosen, tasks, contexts)):
                # Whoever comes later may send even fewer away: there is no point in asking again in this step.
                on_its_way = context.arrival is not None or (context.parked is not None and context.parked.on_disk)
                full = full or not on_its_way
                continue
            if context.uncomputed != uncomputed:
                continue  # what it remembered was lost, so that it has more to do than this plan knows
            chosen.add(context)
            context.last_used = step
            if is_piece:
                plan.pieces.append((task, count))
                budget -= count
            elif count:
                plan.steps.append(task)
            else:
                plan.ready.append(task)
        return plan

    def _piece(self, uncomputed: int, budget: int) -> int:
        """How many of these tokens go into this step. A prompt that fits into a step is not cut.

        Cutting what need not be cut makes many odd sizes, for each of which library kernels plan anew, and reads a
        session's history twice.
        """
        if uncomputed <= budget:
            return uncomputed
        return 0 if uncomputed <= self._config.prefill_tokens else budget


def _victims(
    task: Task, chosen: set[SessionState], tasks: list[Task], contexts: Collection[SessionState]
) -> Iterator[SessionState]:
    """Whose memory may go for this task: idle sessions, least recently used first, then tasks that came later."""
    idle = [c for c in contexts if c.task is None and c.waits_for is None and c.slot is not None]
    yield from sorted(idle, key=lambda c: c.last_used)
    for other in reversed(tasks):
        if other.number <= task.number:
            return
        if other.context.slot is not None and other.context not in chosen:
            yield other.context


def at_image(context: SessionState) -> bool:
    """Whether the next token stands for a part of an image."""
    return bool(context.uncomputed) and any(span.start <= context.computed < span.end for span in context.images)
