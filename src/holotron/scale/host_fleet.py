"""A fleet on hosts that may be lost at any moment; episodes come together in one store.

A host is given a task when one of its places is free and hands back a whole episode, which is written here. So a host
needs no disk that others see, a task is in one pair of hands, and a lost host costs what it was playing: that is given
to another. Whoever writes slowly is given work slowly: a place is free again when its episode is on the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import count
from typing import Protocol

from holotron.agent.chat import ChatModel
from holotron.env.errors import InfrastructureError
from holotron.env.task import Task, TaskKey
from holotron.episodes.errors import BeingWritten
from holotron.episodes.fleet import Counters, first_error, unfinished
from holotron.episodes.record import EpisodeInfo
from holotron.episodes.store import EpisodeStore
from holotron.episodes.transfer import write_in
from holotron.episodes.worker_pool import Share, grouped
from holotron.scale.browser_host import Played
from holotron.suites.play import Play

TRIES = 6  # hosts that a task may lose before it is given up: it may be what ends them
GIVEN_UP = 3  # of these, for a host that lives and could not play it: another has a browser or a network of its own
SUSPECT = 3  # a task that lost so many is played while no other such task is: what ends hosts takes others along


class HostLost(InfrastructureError):
    """A host ended while it played. Another, or its successor, can play the task."""


class HostGone(InfrastructureError):
    """A host that will not come back."""


class Host(Protocol):
    """A place where tasks are played, as the fleet sees it."""

    async def ready(self) -> None:
        """When it can play; that may take until a machine has room for it. HostGone if it never can."""

    async def play(self, task: Task) -> Played:
        """HostLost if it ended meanwhile; an error that is no episode's is raised as it is."""


class OpenHosts(Protocol):
    """Starts hosts, each for so many sessions over so many browsers; they end with the context."""

    def __call__(
        self, how: Play, model: ChatModel | None, *, hosts: int, sessions: int, browsers: int
    ) -> AbstractAsyncContextManager[Sequence[Host]]: ...


async def play_on_hosts(
    open_hosts: OpenHosts,
    how: Play,
    tasks: Iterable[Task],
    model: ChatModel | None,
    *,
    sessions: int = 8,
    browsers: int = 1,
    workers: int = 1,
    on_change: Callable[[Counters], None] = lambda _: None,
) -> Counters:
    """As play_tasks, with hosts for workers. `retried` counts episodes that lost their host, too."""
    store, todo = EpisodeStore(how.store), list(tasks)
    left = await asyncio.to_thread(unfinished, store, todo)
    counters = Counters(total=len(todo), skipped=len(todo) - len(left))
    on_change(counters)
    if not left:
        return counters
    hosts = min(workers, len(left))
    each = -(-min(sessions, len(left)) // hosts)
    async with open_hosts(how, model, hosts=hosts, sessions=each, browsers=browsers) as opened:
        share = Share(left, groups=grouped(left, how.suite.page_of))
        ended = count(1)

        def on_end(*_: object) -> None:
            if next(ended) == len(left):
                run.over.set()

        run = HostRun(store, share, counters, on_change, on_end)
        await run.play(opened, each)
    return counters


class HostRun:
    """The tasks that are left, and what has become of the others.

    on_end: told each task with its episode, None where the infrastructure lost it.
    """

    def __init__(
        self,
        store: EpisodeStore,
        share: Share[Task],
        counters: Counters,
        on_change: Callable[[Counters], None],
        on_end: Callable[[Task, EpisodeInfo | None], None],
    ) -> None:
        self._store, self._share, self._counters = store, share, counters
        self._on_change, self._on_end = on_change, on_end
        self._places = 0
        self._more: asyncio.Queue[Task] = asyncio.Queue()
        self._losses: Counter[TaskKey] = Counter()
        self._suspect = asyncio.Lock()
        self.over = asyncio.Event()

    def put(self, task: Task) -> None:
        """Have a task played that was not in the share, or that was lost."""
        self._more.put_nowait(task)

    async def play(self, hosts: Sequence[Host], each: int) -> None:
        """Play on so many places of each host until it is over; what is in hand then is lost."""
        places = [host for host in hosts for _ in range(each)]
        self._places = len(places)
        try:
            async with asyncio.TaskGroup() as group:
                working = [group.create_task(self._work(host)) for host in places]
                await self.over.wait()
                for place in working:
                    place.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from errors

    async def _work(self, host: Host) -> None:
        """One place of a host, until it is cancelled. HostGone if no other place is left."""
        tasks = self._tasks()
        try:
            while True:
                await host.ready()
                async for task in tasks:
                    if not await self._played(host, task):
                        break
        except HostGone:
            self._places -= 1
            if not self._places:
                raise

    async def _tasks(self) -> AsyncIterator[Task]:
        for task in self._share.take():
            yield task
        while True:
            yield await self._more.get()

    async def _played(self, host: Host, task: Task) -> bool:
        """False if the host was lost."""
        counters = self._counters
        counters.running += 1
        try:
            played = await self._play(host, task)
            if played.info is None:
                counters.retried += played.counters.retried
                self._try_again(task, GIVEN_UP, played.counters.problem)
            else:
                await self._keep(task, played)
        except HostLost as error:
            self._try_again(task, 1, str(error))
            return False
        finally:
            counters.running -= 1
            self._on_change(counters)
        return True

    async def _play(self, host: Host, task: Task) -> Played:
        if self._losses[task.key] < SUSPECT:
            return await host.play(task)
        async with self._suspect:
            try:
                await host.ready()  # it may have ended meanwhile
            except HostGone:
                self.put(task)
                raise
            return await host.play(task)

    async def _keep(self, task: Task, played: Played) -> None:
        info = played.info
        assert info is not None
        try:
            kept = await asyncio.to_thread(write_in, self._store, info, played.steps)
        except BeingWritten:
            kept = False
        if kept:
            now = time.monotonic()  # by the clock of this machine
            self._counters.add(replace(played.counters, first_step=now, last_step=now))
        else:
            self._counters.skipped += 1  # another fleet works on the same store
            info = self._store.info(info.id)
        self._on_end(task, info)

    def _try_again(self, task: Task, tries: int, problem: str) -> None:
        self._counters.problem = problem
        self._losses[task.key] += tries
        if self._losses[task.key] < TRIES:
            self._counters.retried += 1
            self.put(task)
        else:
            self._counters.infrastructure += 1
            self._on_end(task, None)
