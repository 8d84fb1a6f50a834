"""LoRA adapters that come and go while sessions run."""

from __future__ import annotations

from collections.abc import Mapping

from holotron.engine.engine_loop import EngineLoop
from holotron.engine.errors import SessionBusy
from holotron.model.adapters import AdapterSet, fill_layers
from holotron.model.checkpoint.adapter import LowRank


def set_adapter(loop: EngineLoop, name: str, changes: Mapping[str, LowRank] | None) -> None:
    """Give a name an adapter, or take its adapter away (None), which open sessions must not have.

    Sessions keep the adapter that they were opened with. One that was replaced is freed here, once none has it.
    """
    adapters = loop.model.adapters or AdapterSet()
    before = adapters.number(name) if changes is None or name in adapters.names else None
    having = [session for session in loop.sessions.values() if session.adapter == before]
    kept = [session for session in having if session.left_at is None]
    if changes is None:
        if kept:
            raise SessionBusy(f"{len(kept)} sessions have the adapter {name!r}; close them first")
        adapters.remove(name)
    else:
        adapters.add(name, changes)
    for session in having:
        if session.left_at is not None:
            loop.close(session)  # a request without a session left it, and none can find it any more
    adapters.free({session.adapter for session in loop.sessions.values()})
    loop.model.adapters = adapters
    fill_layers(loop.model)
    loop.runner.forget_graphs()
