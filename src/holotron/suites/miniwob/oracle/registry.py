"""Which oracle teaches which task of MiniWoB++.

An oracle is asked before every step and remembers nothing: it reads all it needs off the page, so it can be asked in a
state that another actor, such as the policy, brought about. It answers with the next action, or with None where no
action leads to success any more.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module

from holotron.actions.action import Action
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.tasks import find_task

Oracle = Callable[[PageInspector], Awaitable[Action | None]]
ORACLES: dict[str, Oracle] = {}


def teaches(*tasks: str) -> Callable[[Oracle], Oracle]:
    def register(oracle: Oracle) -> Oracle:
        for task in tasks:
            assert task not in ORACLES, f"two oracles for {task}"
            ORACLES[find_task(task).name] = oracle
        return oracle

    return register


@cache
def load_oracles() -> dict[str, Oracle]:
    """Every oracle by its task: importing the modules registers them."""
    tasks = import_module("holotron.suites.miniwob.oracle.tasks")
    for module in pkgutil.iter_modules(tasks.__path__):
        import_module(f"{tasks.__name__}.{module.name}")
    return ORACLES
