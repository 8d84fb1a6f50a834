"""Keeps sessions on the device while they run, and makes room for them: checkpoints go first, then idle sessions.

Running short is never an error. What must give way is copied to host memory or disk, or freed and computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holotron.engine.config import EngineConfig
from holotron.engine.offload import Arrival, OffloadStore
from holotron.engine.pools import PagePool, StatePool
from holotron.engine.runner import Runner
from holotron.engine.session_state import Checkpoint, OffloadedCheckpoint, SessionState


@dataclass
class EvictionCounters:
    """What shortage of memory has cost so far."""

    evicted: int = 0
    preempted: int = 0  # of those, in the middle of a turn
    restored: int = 0
    dropped: int = 0  # with no copy of their memory: computed again
    recomputed_tokens: int = 0


class MemoryManager:
    """Slots, pages and offloaded copies of all sessions."""

    def __init__(self, runner: Runner, config: EngineConfig) -> None:
        self.config = config
        self.runner = runner
        self.slots = StatePool(config.slots)
        self.pages = PagePool(config.pages)
        self.offload_store = OffloadStore(runner.memory, config.host_bytes, config.disk_bytes, config.disk_folder)
        self.evictions = EvictionCounters()
        self._surplus: dict[SessionState, None] = {}  # sessions with a checkpoint more than they may count on
        self.has_state = runner.model.config.count("M") > 0
        self._has_pages = runner.model.config.count("*") > 0

    # ---- on the device ----

    def secure(self, session: SessionState, new_tokens: int, victims: Iterable[SessionState]) -> bool:
        """Have the session on the device with room for so many more tokens; False if that must wait.

        Victims are sessions that may be evicted for it, the first first.
        """
        if session.arrival is not None:
            if not session.arrival.done:
                return False
            session.arrival = None
        if session.offloaded is not None and session.offloaded.lost:
            self.free(session, recompute=True)
        if session.offloaded is not None and not self.offload_store.prefetch(session.offloaded):
            return False
        away = iter(victims)
        if session.slot is None and not self._place(session, away):
            return False
        return self._grow(session, new_tokens, away) and session.arrival is None

    def has_room_for_one(self, session: SessionState) -> bool:
        """Whether one more token can be computed as things are. Cheap: asked for every session in every step."""
        if session.slot is None or session.arrival is not None:
            return False
        if not self._has_pages:
            return True
        page = (session.computed - session.dropped) // self.config.page_size
        return page < len(session.pages) and not self.pages.is_shared(session.pages[page])

    def _place(self, session: SessionState, victims: Iterable[SessionState]) -> bool:
        needed = self.pages_for(session.entries)
        if not self._make_room(1, needed, victims):
            return False
        slot, pages = self.slots.acquire(), self.pages.acquire(needed)
        assert slot is not None
        assert pages is not None
        session.slot, session.pages = slot, pages
        if session.offloaded is None:
            self.runner.clear_slot(slot)
        else:
            arrival = self.offload_store.restore(session.offloaded, slot, pages)
            if arrival is None:
                self.free(session, recompute=True)
                return self._place(session, victims)
            self.evictions.restored += 1
            session.offloaded = None
            arrival = self._restore_checkpoints(session) or arrival
            session.arrival = None if arrival.done else arrival
        self.runner.set_pages(slot, pages)
        return True

    def _grow(self, session: SessionState, new_tokens: int, victims: Iterable[SessionState]) -> bool:
        assert session.slot is not None
        size = self.config.page_size
        needed = self.pages_for(session.entries + new_tokens) - len(session.pages)
        # The page that the next token goes to may be shared with a fork: it is copied before it is written.
        writes_to = session.entries // size
        shared = writes_to < len(session.pages) and self.pages.is_shared(session.pages[writes_to])
        if needed <= 0 and not shared:
            return True
        if not self._make_room(0, max(needed, 0) + shared, victims):
            return False
        if shared:
            own = self.pages.acquire(1)
            assert own is not None
            self.runner.copy_pages(session.pages[writes_to : writes_to + 1], own)
            self.pages.release([session.pages[writes_to]])
            session.pages[writes_to] = own[0]
        session.pages += self.pages.acquire(max(needed, 0)) or []
        self.runner.set_pages(session.slot, session.pages, min(writes_to, len(session.pages) - 1))
        return True

    def pages_for(self, entries: int) -> int:
        return -(-entries // self.config.page_size) if self._has_pages else 0

    def _make_room(self, slots: int, pages: int, victims: Iterable[SessionState]) -> bool:
        def fits() -> bool:
            return slots <= self.slots.free and pages <= self.pages.free

        if fits():
            return True
        while slots > self.slots.free and self._surplus:
            self._drop_oldest(next(iter(self._surplus)))
        for victim in victims:
            if victim.checkpoints and slots > self.slots.free:
                self.drop_checkpoints(victim)
            if victim.slot is not None and not fits():
                self.evict(victim)
            if fits():
                return True
        return False

    # ---- away from it ----

    def _restore_checkpoints(self, session: SessionState) -> Arrival | None:
        """Bring back the checkpoints of a session that moved, while there are slots to spare: the latest first."""
        last = None
        for kept in sorted(session.offloaded_checkpoints, key=lambda kept: -kept.position):
            slot = self.slots.acquire() if len(session.checkpoints) <= self.config.checkpoints else None
            arrival = None if slot is None else self.offload_store.restore(kept.offloaded, slot, [])
            if arrival is not None and slot is not None:
                session.checkpoints.insert(0, Checkpoint(kept.position, slot, kept.logits))
                last = arrival
            elif slot is not None:
                self.slots.release(slot)
            self.offload_store.free(kept.offloaded)
        session.offloaded_checkpoints = []
        if len(session.checkpoints) > self.config.checkpoints:
            self._surplus[session] = None
        return last

    def evict(self, session: SessionState, *, leaving: bool = False) -> None:
        """Copy the session off the device; what cannot be copied is freed and computed again.

        One that is leaving for another engine takes its checkpoints with it.
        """
        assert session.slot is not None
        self._await_restore(session)
        # Pages that it was given for tokens which were not computed after all stay here: it comes back without them.
        self._truncate(session, session.computed)
        session.offloaded = self.offload_store.save(session.slot, session.pages) if session.computed else None
        self.evictions.evicted += 1
        self.evictions.preempted += session.request is not None
        if session.offloaded is None and session.computed:
            self.free(session, recompute=True)
            return
        if leaving and session.offloaded is not None:
            self.offload_store.hold(session.offloaded)
            for kept in session.checkpoints:
                if (saved := self.offload_store.save(kept.slot, [])) is not None:
                    self.offload_store.hold(saved)
                    session.offloaded_checkpoints.append(OffloadedCheckpoint(kept.position, saved, kept.logits))
        self._free_device(session)

    def free(self, session: SessionState, *, recompute: bool = False) -> None:
        """Free the session's memory everywhere. With recompute it is counted as work to be done again: tokens stay."""
        if recompute and session.computed:
            self.evictions.dropped += 1
            self.evictions.recomputed_tokens += session.computed
        if session.offloaded is not None:
            self.offload_store.free(session.offloaded)
            session.offloaded = None
        for kept in session.offloaded_checkpoints:
            self.offload_store.free(kept.offloaded)
        session.offloaded_checkpoints = []
        self._free_device(session)
        session.computed = session.dropped = session.dropped_before = 0
        session.logits = None

    def _free_device(self, session: SessionState) -> None:
        self._await_restore(session)
        self.drop_checkpoints(session)
        if session.slot is not None:
            self.slots.release(session.slot)
            self.pages.release(session.pages)
        session.slot, session.pages = None, []

    def _await_restore(self, session: SessionState) -> None:
        """Let nothing happen to a session's memory before it is all there."""
        if session.arrival is not None:
            session.arrival.wait()
            session.arrival = None

    def evict_all(self, sessions: Iterable[SessionState], *, weights: bool = False) -> None:
        """Evict every session, and give the device's memory back until `reopen`."""
        for session in sessions:
            if session.slot is not None:
                self.evict(session)
            for span in session.images:
                span.embeddings = None
        self.runner.release(weights=weights)
        self.offload_store.memory = self.runner.memory

    def reopen(self) -> None:
        self.runner.restore()
        self.offload_store.memory = self.runner.memory

    # ---- going back ----

    def checkpoint(self, session: SessionState, left: Iterable[SessionState] = ()) -> None:
        """Remember the state as it is now, if there is a slot to spare; the oldest of its checkpoints gives way.

        One more than the configured number is kept where that takes nothing from a session, and is the first thing to
        go: then both the start and the end of the last prompt can be gone back to. left: sessions that nobody holds, in
        the order in which they give up theirs.
        """
        if not (self.config.checkpoints and self.has_state and session.slot is not None and session.computed):
            return
        if any(kept.position == session.computed for kept in session.checkpoints):
            return
        slot = None
        if len(session.checkpoints) <= self.config.checkpoints:
            if not self.slots.free:
                giving = next(iter(self._surplus), None) or next((each for each in left if each.checkpoints), None)
                if giving is not None:
                    self._drop_oldest(giving)
            slot = self.slots.acquire()
        if slot is not None and len(session.checkpoints) == self.config.checkpoints:
            self._surplus[session] = None
        if slot is None and session.checkpoints:
            slot = session.checkpoints.pop(0).slot
        if slot is not None:
            self.runner.copy_slot(session.slot, slot)
            session.checkpoints.append(Checkpoint(session.computed, slot, session.logits))

    def rewind(self, session: SessionState, position: int) -> None:
        """Let the memory hold at most the first `position` tokens; the rest of them is computed again if it must be."""
        if position >= session.computed:
            return
        session.logits = None
        self._await_restore(session)
        if not self.has_state and session.slot is not None:
            self._truncate(session, position)  # keys and values of a transformer can be cut anywhere
            return
        usable = [c for c in session.checkpoints if session.dropped_before <= c.position <= position]
        if session.slot is None or not usable:
            self.free(session, recompute=True)
            return
        best = max(usable, key=lambda c: c.position)
        self.runner.copy_slot(best.slot, session.slot)
        self.drop_checkpoints(session, keep=range(position + 1))
        self.evictions.recomputed_tokens += position - best.position
        self._truncate(session, best.position)
        session.logits = best.logits if best.position == position else None

    def _truncate(self, session: SessionState, position: int) -> None:
        session.computed = position
        keep = self.pages_for(session.entries)
        self.pages.release(session.pages[keep:])
        del session.pages[keep:]

    def drop_checkpoints(self, session: SessionState, keep: range = range(0)) -> None:
        """Free the session's checkpoints, except those at the positions to keep."""
        for kept in session.checkpoints:
            if kept.position not in keep:
                self.slots.release(kept.slot)
        session.checkpoints = [kept for kept in session.checkpoints if kept.position in keep]
        if len(session.checkpoints) <= self.config.checkpoints:
            self._surplus.pop(session, None)

    def _drop_oldest(self, session: SessionState) -> None:
        self.slots.release(session.checkpoints.pop(0).slot)
        self._surplus.pop(session, None)

    def fork_into(self, parent: SessionState, child: SessionState, victims: Iterable[SessionState]) -> bool:
        """Give the child the parent's memory: a copy of its state, the same pages. False if there is no slot."""
        assert parent.slot is not None
        self._await_restore(parent)
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
        if parent.pages:
            self.runner.copy_pages(parent.pages, child.pages[: len(parent.pages)])
        child.computed = parent.computed
        child.logits = None if parent.logits is None else parent.logits.clone()
        return True

    def fork_at(
        self, parent: SessionState, child: SessionState, position: int, victims: Iterable[SessionState]
    ) -> bool:
        """Give the child the parent's memory as it was at one of its checkpoints; without a state, anywhere."""
        kept = next((c for c in parent.checkpoints if c.position == position), None)
        stands_there = position == parent.computed or not self.has_state
        if (kept is None and not stands_there) or parent.slot is None or not self.fork_into(parent, child, victims):
            return False
        assert child.slot is not None
        if kept is not None:
            self.runner.copy_slot(kept.slot, child.slot)
        self._truncate(child, position)
        child.logits = parent.logits_at(position)
        return True

    def drop_old_images(self, session: SessionState) -> None:
        """Give back the pages that hold nothing but screenshots older than the last `keep_images`."""
        if session.keep_images is None or session.slot is None:
            return
        size = self.config.page_size
        old = session.images[: max(0, len(session.images) - session.keep_images)]
        for span in old:
            if span.end > session.computed or span.start < session.dropped_before:
                continue
            first, last = -(-(span.start - session.dropped) // size), (span.end - session.dropped) // size
            if last > first:
                self.pages.release(session.pages[first:last])
                del session.pages[first:last]
                session.dropped += (last - first) * size
                self.runner.set_pages(session.slot, session.pages, first)
            session.dropped_before = span.end
        self.drop_checkpoints(session, keep=range(session.dropped_before, len(session.tokens) + 1))
