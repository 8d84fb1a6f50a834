"""LoRA adapters that come and go while sessions run."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from holotron.engine.engine_loop import EngineLoop
from holotron.engine.errors import EngineError, SessionBusy
from holotron.model.adapters import AdapterSet, fill_layers, held_changes
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
    loop.forget_graphs()


@torch.no_grad()
def update_adapter(loop: EngineLoop, name: str, changes: Mapping[str, LowRank]) -> None:
    """Give an adapter other values of the same shapes, in place; a name that has none gets these.

    Sessions that have it go on with the new values, and so do recorded graphs. On an error the old ones stay.
    """
    own = {
        layer: LowRank(change.A_RI.detach().clone(), change.B_OR.detach().clone()) for layer, change in changes.items()
    }
    sums = [tensor.sum() for change in own.values() for tensor in (change.A_RI, change.B_OR)]
    if not sums or not bool(torch.stack(sums).isfinite().all()):
        raise EngineError(f"the update of the adapter {name!r} is empty, or holds NaN or infinity")
    adapters = loop.model.adapters
    if adapters is None or name not in adapters.names:
        set_adapter(loop, name, own)
        return
    held = held_changes(loop.model, name)
    if _shapes(held) != _shapes(own):
        raise EngineError(f"the adapter {name!r} changes other layers, or by another rank, than its update")
    for layer, change in own.items():
        held[layer].A_RI.copy_(change.A_RI)
        held[layer].B_OR.copy_(change.B_OR)
    adapters.replace(name, own)


def _shapes(changes: Mapping[str, LowRank]) -> dict[str, tuple[torch.Size, torch.Size]]:
    return {layer: (change.A_RI.shape, change.B_OR.shape) for layer, change in changes.items()}
