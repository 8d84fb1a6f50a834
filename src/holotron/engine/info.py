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
    """Counters and gauges of the engine, and how many sessions have their memory where."""

    values: dict[str, float] = field(default_factory=dict)
    residency: dict[str, int] = field(default_factory=dict)


def describe(core: EngineLoop, context: SessionState) -> SessionInfo:
    return SessionInfo(
        context.id,
        len(context.tokens),
        context.computed,
        device_bytes(core, context),
        context.residency,
        tuple(context.turns),
        context.epoch,
        context.task is not None,
    )


def device_bytes(core: EngineLoop, context: SessionState) -> int:
    """What a session takes on the device, its checkpoints counted."""
    memory = core.runner.memory
    slots = (1 + len(context.checkpoints)) if context.slot is not None else 0
    return slots * memory.slot_bytes + len(context.pages) * memory.page_bytes


def device_usage(core: EngineLoop) -> tuple[int, int, int]:
    """Sessions that have computed memory on the device, their bytes and their tokens there."""
    here = [c for c in core.contexts.values() if c.slot is not None and c.computed]
    return len(here), sum(device_bytes(core, c) for c in here), sum(c.entries for c in here)


def counters(core: EngineLoop) -> dict[str, Any]:
    """What was done so far, and what is free."""
    residence = core.residence
    return {
        **vars(core.counters),
        **vars(residence.traffic),
        "redundancy": core.counters.redundancy,
        "sessions": len(core.contexts),
        "running": len(core.tasks),
        "free_slots": residence.slots.free,
        "free_pages": residence.pages.free,
        "host_bytes": residence.spill.host_used,
        "disk_bytes": residence.spill.disk_used,
        "spilled_bytes": residence.spill.spilled_bytes,
        "restored_bytes": residence.spill.restored_bytes,
        "encoded_parts": core.encoder.encoded_parts,
        "reused_parts": core.encoder.reused_parts,
        "epoch": core.epoch,
    }


def engine_stats(core: EngineLoop) -> EngineStats:
    values = {key: float(value) for key, value in counters(core).items()}
    residency = dict.fromkeys((place.value for place in Residency), 0)
    waiting = kept = 0
    for context in core.contexts.values():
        residency[context.residency.value] += 1
        waiting += context.task is not None and not context.task.begun and not context.task.generated
        kept += context.left_at is not None
    values |= {
        "waiting": float(waiting),
        "kept": float(kept),
        "page_share": 1 - values["free_pages"] / max(1, core.config.pages - 1),
        "slot_share": 1 - values["free_slots"] / max(1, core.config.slots - 1),
    }
    return EngineStats(values, residency)
