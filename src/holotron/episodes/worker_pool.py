"""Worker processes with browsers of their own, and the model that all ask, in this process or in a few others."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, Generic, TypeVar

from holotron.agent.chat import ChatModel
from holotron.agent.endpoint import EndpointModel
from holotron.agent.hosted_model import ModelHandle, ModelHost
from holotron.agent.model_processes import ModelProcesses
from holotron.env.errors import InfrastructureError
from holotron.env.workers import end_with_parent, portable

NICENESS = 5  # of workers: browsers take every core they get, and the one model that all wait for must not
PATIENCE = 15.0  # seconds in which a worker that is told to end may close its browsers
T = TypeVar("T")
R = TypeVar("R")


class WorkerDied(InfrastructureError):
    """A worker process ended without a result: it was killed, or ran out of memory."""


class _Counts(list[int]):
    """What one process counts alone, as several do in memory that they share."""

    def get_lock(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass
class Share(Generic[T]):
    """One worker's part of a list that all take from, and the model that all ask.

    groups: places in the list that are better taken one after another by the same; all are one group unless told.
    number: of the worker; copies of a model are asked by every so manieth.
    """

    items: Sequence[T]
    model: ChatModel | None = None
    report: Callable[[Any], None] = lambda _: None
    groups: Sequence[Sequence[int]] = ()
    counts: Any = None  # of each group, how many items were taken, and how many take from it
    number: int = 0

    def __post_init__(self) -> None:
        self.groups = self.groups or [range(len(self.items))]
        if self.counts is None:
            self.counts = _Counts([0] * 2 * len(self.groups))

    def take(self) -> Iterator[T]:
        """The items that nobody has taken yet, one by one, for several to iterate at once.

        An iterator stays with a group to its end, and goes on with the one that has most left for each that takes.
        """
        group: int | None = None
        while True:
            with self.counts.get_lock():
                group = self._group_after(group)
                if group is None:
                    return
                taken = self.counts[2 * group]
                self.counts[2 * group] += 1
            yield self.items[self.groups[group][taken]]

    def _group_after(self, group: int | None) -> int | None:
        left = [len(places) - self.counts[2 * number] for number, places in enumerate(self.groups)]
        if group is not None:
            if left[group]:
                return group
            self.counts[2 * group + 1] -= 1
        best = max(range(len(left)), key=lambda number: left[number] / (self.counts[2 * number + 1] + 1))
        if not left[best]:
            return None
        self.counts[2 * best + 1] += 1
        return best

    async def each(self, work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
        """What becomes of the items of this share, so many at once, in the order in which they end."""
        left, done = self.take(), list[R]()

        async def one() -> None:
            for item in left:
                done.append(await work(item))

        await asyncio.gather(*(one() for _ in range(at_once)))
        return done


def grouped(items: Sequence[T], group: Callable[[T], Hashable]) -> list[list[int]]:
    """The places of items for which `group` is equal, together."""
    groups: dict[Hashable, list[int]] = {}
    for index, item in enumerate(items):
        groups.setdefault(group(item), []).append(index)
    return list(groups.values())


async def share_out(
    work: Callable[[Share[T]], Awaitable[R]],
    items: Sequence[T],
    model: ChatModel | None,
    *,
    workers: int = 1,
    on_report: Callable[[int, Any], None] = lambda *_: None,
    together: bool = False,
    group: Callable[[T], Hashable] = lambda _: None,
) -> list[R]:
    """What `work` makes of the items, once for each worker; `work` must be picklable.

    One worker is this process itself, unless the model is in others. on_report: told a worker's number and what it
    reported. If a worker dies the others go on to the end, unless they end `together`; then WorkerDied is raised.
    group: items of one group are better taken by the same.
    """
    groups = grouped(items, group)
    if workers == 1 and not isinstance(model, ModelProcesses):
        return [await work(Share(items, model, lambda value: on_report(0, value), groups))]
    spawn = multiprocessing.get_context("spawn")
    counts = spawn.Array("q", 2 * max(1, len(groups)))
    results: list[R] = []
    processes: list[BaseProcess] = []
    with ExitStack() as stack:
        asked: Sequence[ModelHandle | EndpointModel | None] = [None]
        if isinstance(model, EndpointModel):
            asked = [model]  # each worker is a client of its own
        elif isinstance(model, ModelProcesses):
            asked = model.handles
        elif model is not None:
            asked = [stack.enter_context(ModelHost(model)).handle()]
        ends: list[Awaitable[None]] = []
        try:
            for number in range(workers):
                receiver, sender = spawn.Pipe(duplex=False)
                arguments = (work, items, asked[number % len(asked)], groups, counts, number, sender)
                processes.append(spawn.Process(target=_main, args=arguments, daemon=True))
                processes[-1].start()
                sender.close()
                ends.append(_follow(receiver, number, results, on_report))
                if together:
                    ends[-1] = _end_all_with(processes[-1], ends[-1])
            await asyncio.gather(*ends)
        except BaseException:
            for process in processes:
                process.terminate()
            raise
        finally:
            await asyncio.shield(asyncio.to_thread(_end, processes))
    if died := [process for process in processes if process.exitcode]:
        raise WorkerDied(f"{len(died)} of {workers} worker processes died, one with exit code {died[0].exitcode}")
    return results


async def _follow(receiver: Connection, number: int, results: list[R], on_report: Callable[[int, Any], None]) -> None:
    """Hear a worker out until it ends; its error is raised here."""
    loop, over = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def hear() -> None:
        try:
            kind, value = receiver.recv()
            if kind == "report":
                on_report(number, value)
            elif kind == "result":
                results.append(value)
            elif not over.done():
                over.set_exception(value)
        except (EOFError, OSError):  # it has ended, or was killed in the middle of a message
            if not over.done():
                over.set_result(None)
            loop.remove_reader(receiver.fileno())

    loop.add_reader(receiver.fileno(), hear)
    try:
        await over
    finally:
        loop.remove_reader(receiver.fileno())
        receiver.close()


async def _end_all_with(process: BaseProcess, end: Awaitable[None]) -> None:
    await end
    await asyncio.to_thread(process.join, PATIENCE)
    if process.exitcode:
        raise WorkerDied(f"a worker process died with exit code {process.exitcode}")


def _end(processes: Sequence[BaseProcess]) -> None:
    """Wait for workers; those that do not end are killed with all that they started."""
    until = monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, until - monotonic()))
        if process.is_alive() and process.pid is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()


def _main(
    work: Callable[[Share[Any]], Awaitable[Any]],
    items: Sequence[Any],
    asked: ModelHandle | EndpointModel | None,
    groups: Sequence[Sequence[int]],
    counts: Any,
    number: int,
    sender: Connection,
) -> None:
    """A worker's life."""
    os.setsid()  # the terminal's Ctrl-C is for the parent; it must not end browsers in the middle of a step
    end_with_parent()
    os.nice(NICENESS)

    async def live() -> Any:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with AsyncExitStack() as stack:
            model: ChatModel | None = None
            if isinstance(asked, ModelHandle):
                model = await stack.enter_async_context(await asked.connect())
            elif asked is not None:
                stack.push_async_callback(asked.aclose)
                model = asked
            return await work(Share(items, model, lambda value: sender.send(("report", value)), groups, counts, number))

    try:
        sender.send(("result", asyncio.run(live())))
    except asyncio.CancelledError:
        pass  # the parent wants no result any more
    except Exception as error:
        with suppress(OSError):  # a parent that ends its workers listens no more
            sender.send(("error", portable(error, RuntimeError)))
