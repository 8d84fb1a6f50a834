"""All oracles: importing their modules registers them."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from holotron.suites.miniwob.oracle import tasks
from holotron.suites.miniwob.oracle.registry import ORACLES, Oracle


@cache
def load_teachers() -> dict[str, Oracle]:
    """Every oracle by its task."""
    for module in pkgutil.iter_modules(tasks.__path__):
        importlib.import_module(f"{tasks.__name__}.{module.name}")
    return ORACLES
