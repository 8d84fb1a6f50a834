"""LoRA adapters that come and go while sessions run."""

from __future__ import annotations

from collections.abc import Mapping

from holotron.engine.engine_loop import EngineLoop
from holotron.model.adapters import AdapterSet, fill_layers
from holotron.model.checkpoint.adapter import LowRank


def set_adapter(loop: EngineLoop, name: str, changes: Mapping[str, LowRank] | None) -> None:
    """Give a name an adapter, or take its adapter away (None). Open sessions keep what they were opened with.

    Adapters without a name that no session has any more are freed, here and not before.
    """
    adapters = loop.model.adapters or AdapterSet()
    before = adapters.number(name) if changes is None or name in adapters.names else None
    if changes is None:
        adapters.remove(name)
    else:
        adapters.add(name, changes)
    for session in list(loop.sessions.values()):
        if session.adapter == before and session.left_at is not None:
            loop.close(session)  # a request without a session left it, and none can find it any more
    adapters.free({session.adapter for session in loop.sessions.values()})
    loop.model.adapters = adapters
    fill_layers(loop.model)
    loop.runner.forget_graphs()
