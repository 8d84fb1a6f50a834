"""Which oracle teaches which task of MiniWoB++.

An oracle is asked before every step and remembers nothing: whatever it needs it reads off the page, so it can be asked
in a state that somebody else, such as the policy, brought about. It answers with the next action, or with None where
no action leads to success any more.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from holotron.actions.action import Action
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.tasks import find_task

# The random numbers begin anew, from the episode's seed, at each call: a choice between two ways is made once.
Oracle = Callable[[PageInspector, random.Random], Awaitable[Action | None]]
ORACLES: dict[str, Oracle] = {}


def teaches(*tasks: str) -> Callable[[Oracle], Oracle]:
    def register(oracle: Oracle) -> Oracle:
        for task in tasks:
            assert task not in ORACLES, f"two oracles for {task}"
            ORACLES[find_task(task).name] = oracle
        return oracle

    return register
