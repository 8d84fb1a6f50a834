"""Keeps contexts on the device while they run, and makes room for them: checkpoints go first, then idle sessions.

Running short is never an error. What must give way is copied to host memory or disk, or forgotten and computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holotron.engine.config import EngineConfig
from holotron.engine.pools import PagePool, StatePool
from holotron.engine.runner import Runner
from holotron.engine.session_state import Checkpoint, SessionState
from holotron.engine.spill import Spill


@dataclass
class Traffic:
    """What shortage has cost so far."""

    spilled: int = 0
    restored: int = 0
    forgotten: int = 0
    recomputed_tokens: int = 0


class MemoryManager:
    """Slots, pages and spilled copies of all contexts."""

    def __init__(self, runner: Runner, config: EngineConfig) -> None:
        self.config = config
        self.runner = runner
        self.slots = StatePool(config.slots)
        self.pages = PagePool(config.pages)
        self.spill = Spill(runner.memory, config.host_bytes, config.disk_bytes, config.disk_folder)
        self.traffic = Traffic()
        self._has_state = runner.model.config.count("M") > 0
        self._has_pages = runner.model.config.count("*") > 0

    # ---- on the device ----

    def secure(self, context: SessionState, new_tokens: int, victims: Iterable[SessionState]) -> bool:
        """Have the context on the device with room for so many more tokens; False if that must wait.

        Victims are contexts that may be sent away for it, the first first.
        """
        if context.arrival is not None:
            if not context.arrival.done:
                return False
            context.arrival = None
        if context.parked is not None and context.parked.lost:
            self.forget(context)
        if context.parked is not None and not self.spill.prefetch(context.parked):
            return False
        away = iter(victims)
        if context.slot is None and not self._settle(context, away):
            return False
        return self._grow(context, new_tokens, away) and context.arrival is None

    def has_room_for_one(self, context: SessionState) -> bool:
        """Whether one more token can be computed as things are; cheap, since it is asked for everybody every step."""
        if context.slot is None or context.arrival is not None:
            return False
        if not self._has_pages:
            return True
        page = (context.computed - context.dropped) // self.config.page_size
        return page < len(context.pages) and not self.pages.is_shared(context.pages[page])

    def _settle(self, context: SessionState, victims: Iterable[SessionState]) -> bool:
        needed = self._pages_for(context.entries)
        if not self._make_room(1, needed, victims):
            return False
        slot, pages = self.slots.acquire(), self.pages.acquire(needed)
        assert slot is not None
        assert pages is not None
        context.slot, context.pages = slot, pages
        if context.parked is None:
            self.runner.clear_slot(slot)
        else:
            arrival = self.spill.restore(context.parked, slot, pages)
            if arrival is None:
                self.forget(context)
                return self._settle(context, victims)
            self.traffic.restored += 1
            context.parked = None
            context.arrival = None if arrival.done else arrival
        self.runner.set_pages(slot, pages)
        return True

    def _grow(self, context: SessionState, new_tokens: int, victims: Iterable[SessionState]) -> bool:
        assert context.slot is not None
        size = self.config.page_size
        needed = self._pages_for(context.entries + new_tokens) - len(context.pages)
        # The page that the next token goes to may be shared with a fork: it is copied before it is written.
        writes_to = context.entries // size
        shared = writes_to < len(context.pages) and self.pages.is_shared(context.pages[writes_to])
        if needed <= 0 and not shared:
            return True
        if not self._make_room(0, max(needed, 0) + shared, victims):
            return False
        if shared:
            own = self.pages.acquire(1)
            assert own is not None
            self.runner.copy_page(context.pages[writes_to], own[0])
            self.pages.release([context.pages[writes_to]])
            context.pages[writes_to] = own[0]
        context.pages += self.pages.acquire(max(needed, 0)) or []
        self.runner.set_pages(context.slot, context.pages, min(writes_to, len(context.pages) - 1))
        return True

    def _pages_for(self, entries: int) -> int:
        return -(-entries // self.config.page_size) if self._has_pages else 0

    def _make_room(self, slots: int, pages: int, victims: Iterable[SessionState]) -> bool:
        if slots <= self.slots.free and pages <= self.pages.free:
            return True
        for victim in victims:
            if victim.checkpoints and slots > self.slots.free:
                self.drop_checkpoints(victim)
                if slots <= self.slots.free and pages <= self.pages.free:
                    return True
            if victim.slot is not None:
                self.send_away(victim)
            if slots <= self.slots.free and pages <= self.pages.free:
                return True
        return False

    # ---- away from it ----

    def send_away(self, context: SessionState) -> None:
        """Copy the context off the device; what cannot be copied is forgotten."""
        assert context.slot is not None
        self._arrive(context)
        context.parked = self.spill.park(context.slot, context.pages) if context.computed else None
        self.traffic.spilled += 1
        if context.parked is None and context.computed:
            self.forget(context)
            return
        self._leave(context)

    def forget(self, context: SessionState) -> None:
        """Give up the context's memory; its tokens stay and are computed again when it runs."""
        if context.computed:
            self.traffic.forgotten += 1
            self.traffic.recomputed_tokens += context.computed
        self.discard(context)

    def discard(self, context: SessionState) -> None:
        """Free the context's memory everywhere."""
        if context.parked is not None:
            self.spill.forget(context.parked)
            context.parked = None
        self._leave(context)
        context.computed = context.dropped = context.dropped_before = 0
        context.logits = None

    def _leave(self, context: SessionState) -> None:
        self._arrive(context)
        self.drop_checkpoints(context)
        if context.slot is not None:
            self.slots.release(context.slot)
            self.pages.release(context.pages)
        context.slot, context.pages = None, []

    def _arrive(self, context: SessionState) -> None:
        """Let nothing happen to a context's memory before it is all there."""
        if context.arrival is not None:
            context.arrival.wait()
            context.arrival = None

    def evacuate(self, contexts: Iterable[SessionState], *, weights: bool = False) -> None:
        """Send everybody away, and give the device's memory back until `reopen`."""
        for context in contexts:
            if context.slot is not None:
                self.send_away(context)
            for span in context.images:
                span.embeddings = None
        self.runner.release(weights=weights)
        self.spill.memory = self.runner.memory

    def reopen(self) -> None:
        self.runner.restore()
        self.spill.memory = self.runner.memory

    # ---- going back ----

    def checkpoint(self, context: SessionState) -> None:
        """Remember the state as it is now, if there is a slot to spare; the oldest of its checkpoints gives way."""
        if not (self.config.checkpoints and self._has_state and context.slot is not None and context.computed):
            return
        if any(kept.position == context.computed for kept in context.checkpoints):
            return
        slot = self.slots.acquire() if len(context.checkpoints) < self.config.checkpoints else None
        if slot is None and context.checkpoints:
            slot = context.checkpoints.pop(0).slot
        if slot is not None:
            self.runner.copy_slot(context.slot, slot)
            context.checkpoints.append(Checkpoint(context.computed, slot, context.logits))

    def rewind(self, context: SessionState, position: int) -> None:
        """Let the memory hold at most the first `position` tokens; the rest of them is computed again if it must be."""
        if position >= context.computed:
            return
        context.logits = None
        self._arrive(context)
        if not self._has_state and context.slot is not None:
            self._truncate(context, position)  # keys and values of a transformer can be cut anywhere
            return
        usable = [c for c in context.checkpoints if context.dropped_before <= c.position <= position]
        if context.slot is None or not usable:
            self.forget(context)
            return
        best = max(usable, key=lambda c: c.position)
        self.runner.copy_slot(best.slot, context.slot)
        for late in [c for c in context.checkpoints if c.position > position]:
            context.checkpoints.remove(late)
            self.slots.release(late.slot)
        self.traffic.recomputed_tokens += position - best.position
        self._truncate(context, best.position)
        context.logits = best.logits if best.position == position else None

    def _truncate(self, context: SessionState, position: int) -> None:
        context.computed = position
        keep = self._pages_for(context.entries)
        self.pages.release(context.pages[keep:])
        del context.pages[keep:]

    def drop_checkpoints(self, context: SessionState) -> None:
        for kept in context.checkpoints:
            self.slots.release(kept.slot)
        context.checkpoints.clear()

    def fork_into(self, parent: SessionState, child: SessionState, victims: Iterable[SessionState]) -> bool:
        """Give the child the parent's memory: a copy of its state, the same pages. False if there is no slot."""
        assert parent.slot is not None
        self._arrive(parent)
        if not self._make_room(1, 0, victims):
            return False
        slot = self.slots.acquire()
        assert slot is not None
        self.runner.copy_slot(parent.slot, slot)
        self.pages.share(parent.pages)
        child.slot, child.pages = slot, list(parent.pages)
        child.computed, child.dropped, child.dropped_before = parent.computed, parent.dropped, parent.dropped_before
        child.logits, child.epoch = parent.logits, parent.epoch
        self.runner.set_pages(slot, child.pages)
        return True

    def copy_into(self, parent: SessionState, child: SessionState, victims: Iterable[SessionState]) -> bool:
        """Give the child a copy of the parent's memory that shares nothing with it. False if there is no room."""
        if not self.secure(parent, 0, iter(())) or not self.secure(child, parent.entries, victims):
            return False
        assert parent.slot is not None
        assert child.slot is not None
        self.runner.copy_slot(parent.slot, child.slot)
        for source, target in zip(parent.pages, child.pages, strict=False):
            self.runner.copy_page(source, target)
        child.computed = parent.computed
        child.logits = None if parent.logits is None else parent.logits.clone()
        return True

    def fork_at(
        self, parent: SessionState, child: SessionState, position: int, victims: Iterable[SessionState]
    ) -> bool:
        """Give the child the parent's memory as it was at one of its checkpoints."""
        kept = next((c for c in parent.checkpoints if c.position == position), None)
        if kept is None or parent.slot is None or not self.fork_into(parent, child, victims):
            return False
        assert child.slot is not None
        self.runner.copy_slot(kept.slot, child.slot)
        self._truncate(child, position)
        child.logits = kept.logits
        return True

    def drop_old_images(self, context: SessionState) -> None:
        """Give back the pages that hold nothing but screenshots older than the last `keep_images`."""
        if context.keep_images is None or context.slot is None:
            return
        size = self.config.page_size
        old = context.images[: max(0, len(context.images) - context.keep_images)]
        for span in old:
            if span.end > context.computed or span.start < context.dropped_before:
                continue
            first, last = -(-(span.start - context.dropped) // size), (span.end - context.dropped) // size
            if last > first:
                self.pages.release(context.pages[first:last])
                del context.pages[first:last]
                context.dropped += (last - first) * size
                self.runner.set_pages(context.slot, context.pages, first)
            context.dropped_before = span.end
        stale = [c for c in context.checkpoints if c.position < context.dropped_before]
        for kept in stale:
            context.checkpoints.remove(kept)
            self.slots.release(kept.slot)

    def check(self, contexts: Iterable[SessionState]) -> None:
        """Every slot and page is owned as often as it is counted."""
        contexts = list(contexts)
        slots = [c.slot for c in contexts if c.slot is not None]
        slots += [kept.slot for c in contexts for kept in c.checkpoints]
        self.slots.check(slots)
        self.pages.check(c.pages for c in contexts)
        for context in contexts:
            assert context.slot is None or context.parked is None
            assert context.computed <= len(context.tokens)
            if context.slot is not None:
                assert len(context.pages) >= self._pages_for(context.entries)
