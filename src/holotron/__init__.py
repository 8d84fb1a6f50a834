"""Holotron: a throughput-first stack for computer-use agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load"]

if TYPE_CHECKING:
    from holotron.model.loading import load


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, and most commands do not need it: the library is loaded when it is used.
    if name == "load":
        from holotron.model.loading import load

        return load
    raise AttributeError(f"module 'holotron' has no attribute {name!r}")
