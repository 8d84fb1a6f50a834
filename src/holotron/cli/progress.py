"""What long work shows on stderr while it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable

    from holotron.episodes.fleet import Counters


@contextmanager
def passing_progress(what: str) -> Iterator[Callable[..., None]]:
    """A bar that a terminal shows until the work is done: it takes total=, completed= and advance=."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        yield partial(progress.update, progress.add_task(what, total=None))


@contextmanager
def fleet_progress(what: str) -> Iterator[Callable[[Counters], None]]:
    """A bar that follows a fleet's counters; without a terminal, a line now and then."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as progress:
        bar = progress.add_task(what, total=None, detail="")

        def update(counters: Counters) -> None:
            done = counters.finished + counters.skipped + counters.infrastructure
            detail = f"{counters.succeeded} solved, {counters.running} running, {counters.steps_per_second:.1f} steps/s"
            if counters.infrastructure or counters.retried:
                detail += f", {counters.retried} retried, {counters.infrastructure} lost"
            progress.update(bar, total=counters.total, completed=done, detail=detail)

        yield update
