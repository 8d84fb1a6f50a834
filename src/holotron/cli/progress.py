"""What long work shows on stderr while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holotron.cli.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from holotron.episodes.fleet import Counters

SECONDS = 10.0


@contextmanager
def passing_progress(what: str) -> Iterator[Callable[..., None]]:
    """A bar that a terminal shows until the work is done: it takes total=, completed= and advance=."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        yield partial(progress.update, progress.add_task(what, total=None))


@contextmanager
def fleet_progress(what: str) -> Iterator[Callable[[Counters], None]]:
    """A bar that follows a fleet's counters; without a terminal, a line every ten seconds. Why one was lost is told."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(compact=True),
    )
    terminal = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=not terminal) as progress:
        bar = progress.add_task(what, total=None, detail="")
        line, printed, problem = what, time.monotonic(), ""

        def update(counters: Counters) -> None:
            nonlocal line, printed, problem
            done = counters.finished + counters.skipped + counters.infrastructure
            detail = _detail(counters)
            line = f"{what}: {done} of {counters.total}, {detail}"
            progress.update(bar, total=counters.total, completed=done, detail=detail)
            if counters.infrastructure and counters.problem != problem:
                problem = counters.problem
                print(f"lost to the infrastructure: {visible(problem)}", file=sys.stderr)
            if not terminal and time.monotonic() - printed > SECONDS:
                printed = time.monotonic()
                print(line, file=sys.stderr, flush=True)

        try:
            yield update
        finally:
            if not terminal:
                print(line, file=sys.stderr)


def _detail(counters: Counters) -> str:
    parts = [f"{counters.succeeded} of {counters.judged} solved"] if counters.judged else []
    parts += [f"{counters.running} running"] if counters.running else []
    parts.append(f"{counters.steps_per_second:.1f} steps/s")
    if counters.infrastructure or counters.retried:
        parts.append(f"{counters.retried} retried, {counters.infrastructure} lost")
    return ", ".join(parts)
