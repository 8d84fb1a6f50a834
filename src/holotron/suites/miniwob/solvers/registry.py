"""Which solver plays which task."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from holotron.suites.miniwob.actions import Primitive
from holotron.suites.miniwob.page_inspector import PageInspector
from holotron.suites.miniwob.tasks import find_task

# Looks at the page, yields one primitive at a time, and goes on when that has been done and the page is quiet.
Solver = Callable[[PageInspector], AsyncIterator[Primitive]]
SOLVERS: dict[str, Solver] = {}


def solves(*tasks: str) -> Callable[[Solver], Solver]:
    def register(solver: Solver) -> Solver:
        for task in tasks:
            assert task not in SOLVERS, f"two solvers for {task}"
            SOLVERS[find_task(task).name] = solver
        return solver

    return register
