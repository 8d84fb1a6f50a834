"""Holotron: a throughput-first stack for computer-use agents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Agent", "Engine", "EngineConfig", "SamplingParams", "__version__", "load"]

if TYPE_CHECKING:
    from holotron.agent.agent import Agent
    from holotron.engine.config import EngineConfig
    from holotron.engine.engine import Engine
    from holotron.engine.sampling import SamplingParams
    from holotron.model.loading import load

# torch takes seconds to import, and most commands do not need it: the library is loaded when it is used.
_HOMES = {
    "Agent": "holotron.agent.agent",
    "Engine": "holotron.engine.engine",
    "EngineConfig": "holotron.engine.config",
    "SamplingParams": "holotron.engine.sampling",
    "load": "holotron.model.loading",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'holotron' has no attribute {name!r}")
