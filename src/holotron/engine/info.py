"""Sessions and the engine from outside: what callers may know of them. Made on the engine's thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holotron.engine.session_state import Residency, SessionState, Turn

if TYPE_CHECKING:
    from holotron.engine.engine_loop import EngineLoop


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


@dataclass(frozen=True)
class EngineStats:
    """EngineCounters and gauges of the engine, and how many sessions have their memory where."""

    values: dict[str, float] = field(default_factory=dict)
    residency: dict[str, int] = field(default_factory=dict)


def describe(loop: EngineLoop, session: SessionState) -> SessionInfo:
    return SessionInfo(
        session.id,
        len(session.tokens),
        session.computed,
        device_bytes(loop, session),
        session.residency,
        tuple(session.turns),
        session.epoch,
        session.request is not None,
    )


def device_bytes(loop: EngineLoop, session: SessionState) -> int:
    """What a session takes on the device, its checkpoints counted."""
    memory = loop.runner.memory
    slots = (1 + len(session.checkpoints)) if session.slot is not None else 0
    return slots * memory.slot_bytes + len(session.pages) * memory.page_bytes


def device_usage(loop: EngineLoop) -> tuple[int, int, int]:
    """Sessions that have computed memory on the device, their bytes and their tokens there."""
    here = [c for c in loop.sessions.values() if c.slot is not None and c.computed]
    return len(here), sum(device_bytes(loop, c) for c in here), sum(c.entries for c in here)


def counters(loop: EngineLoop) -> dict[str, Any]:
    """What was done so far, and what is free."""
    memory = loop.memory
    return {
        **vars(loop.counters),
        **vars(memory.evictions),
        "redundancy": loop.counters.redundancy,
        "sessions": len(loop.sessions),
        "running": len(loop.requests),
        "slots": memory.slots.size,
        "free_slots": memory.slots.free,
        "free_pages": memory.pages.free,
        "host_bytes": memory.offload_store.host_used,
        "disk_bytes": memory.offload_store.disk_used,
        "offloaded_bytes": memory.offload_store.offloaded_bytes,
        "restored_bytes": memory.offload_store.restored_bytes,
        "encoded_parts": loop.encoder.encoded_parts,
        "reused_parts": loop.encoder.reused_parts,
        "epoch": loop.epoch,
    }


def engine_stats(loop: EngineLoop) -> EngineStats:
    values = {key: float(value) for key, value in counters(loop).items()}
    residency = dict.fromkeys((place.value for place in Residency), 0)
    waiting = kept = 0
    for session in loop.sessions.values():
        residency[session.residency.value] += 1
        waiting += session.request is not None and not session.request.begun and not session.request.generated
        kept += session.left_at is not None
    values |= {
        "waiting": float(waiting),
        "kept": float(kept),
        "page_share": 1 - values["free_pages"] / max(1, loop.config.pages - 1),
        "slot_share": 1 - values["free_slots"] / max(1, loop.config.slots - 1),
    }
    return EngineStats(values, residency)
