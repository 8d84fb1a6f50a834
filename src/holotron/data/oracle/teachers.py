"""All oracles: importing their modules registers them."""

from __future__ import annotations

import importlib
import pkgutil

from holotron.data.oracle import tasks
from holotron.data.oracle.registry import ORACLES, Oracle


def load_teachers() -> dict[str, Oracle]:
    """Every oracle by its task."""
    for module in pkgutil.iter_modules(tasks.__path__):
        importlib.import_module(f"{tasks.__name__}.{module.name}")
    return ORACLES
