"""All oracles: importing their modules registers them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from holotron.suites.miniwob.errors import MiniWoBError
from holotron.suites.miniwob.oracle import tasks
from holotron.suites.miniwob.oracle.registry import ORACLES, Oracle
from holotron.suites.miniwob.tasks import all_tasks, find_task


def load_teachers() -> dict[str, Oracle]:
    """Every oracle by its task."""
    for module in pkgutil.iter_modules(tasks.__path__):
        importlib.import_module(f"{tasks.__name__}.{module.name}")
    return ORACLES


def taught_tasks(names: Sequence[str] = (), split: str | None = None) -> list[str]:
    """Tasks of these names in that part of BrowserGym's split; all that have an oracle if none is named."""
    taught = load_teachers()
    found = [find_task(name) for name in names or sorted(taught)]
    for task in found:
        if task.name not in taught:
            without = ", ".join(name for name in all_tasks() if name not in taught)
            raise MiniWoBError(f"{task.name} has no oracle; all tasks have one but {without}")
    chosen = [task.name for task in found if split in (None, task.split)]
    if not chosen:
        raise MiniWoBError(f"none of {', '.join(names)} is in the part {split!r} of the split")
    return chosen
