"""Browsers of one machine and the agents that drive them: what a host of a fleet runs."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from holotron import __version__
from holotron.agent.chat import ChatModel
from holotron.agent.endpoint import EndpointModel
from holotron.env.task import Task
from holotron.episodes.fleet import Counters, Fleet
from holotron.episodes.record import EpisodeInfo, StepWithImage
from holotron.episodes.store import EpisodeStore
from holotron.episodes.worker_pool import NICENESS
from holotron.scale.shared_model import SharedModel
from holotron.suites.play import Play

RETRIES = 1  # on this host; then another has its turn
SHOWN = 120  # characters of a task's text, where it has no name


@dataclass(frozen=True)
class Played:
    """What became of a task on a host: its counts and, unless the infrastructure lost it, the whole episode."""

    counters: Counters
    info: EpisodeInfo | None
    steps: tuple[StepWithImage, ...] = ()


@dataclass(frozen=True)
class HostStatus:
    """How a host is getting on, since its process was started."""

    machine: str
    pid: int
    version: str
    suite: str
    playing: tuple[str, ...]  # the names of the tasks
    finished: int
    lost: int
    steps: int


class BrowserHost:
    """Plays tasks, many at once, and hands each episode back. It asks the model itself: a screenshot goes there once.

    An episode is written in a scratch folder and leaves it whole: a host that is killed leaves nothing to anyone.
    """

    def __init__(self, how: Play, model: ChatModel | None, sessions: int, browsers: int, nice: bool = False) -> None:
        self._how, self._model = how, model
        self._sessions, self._browsers = sessions, browsers
        self._total, self._playing = Counters(), Counter[str]()
        self._life: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Any] | None = None
        self._closing = asyncio.Event()
        if nice:
            os.nice(NICENESS)

    async def status(self) -> HostStatus:
        total = self._total
        return HostStatus(
            socket.gethostname(),
            os.getpid(),
            __version__,
            self._how.suite.name,
            tuple(self._playing.elements()),
            total.finished,
            total.infrastructure,
            total.steps,
        )

    async def play(self, task: Task) -> Played:
        """One episode of the task, tried again where a browser or the model failed. Errors that are no episode's."""
        pool = await self._pool()
        how = self._how
        name = (task.name or task.text)[:SHOWN]
        self._playing[name] += 1
        try:
            async with _scratch() as store:
                attempts = how.attempts(pool, self._model)
                fleet = Fleet(store, attempts, how.policy, how.suite.environment, sessions=1, retries=RETRIES)
                counters = await fleet.play(iter([task]))
                self._total.add(counters)
                return await asyncio.to_thread(_packed, store, counters)
        finally:
            self._playing[name] -= 1

    async def close(self) -> None:
        """Close the browsers. What is being played is lost."""
        self._closing.set()
        if self._life is not None:
            await asyncio.wait([self._life])
        if isinstance(self._model, EndpointModel | SharedModel):
            await self._model.aclose()

    async def _pool(self) -> Any:
        if self._ready is None or (self._ready.done() and self._ready.exception() is not None):
            self._ready = asyncio.get_running_loop().create_future()
            self._life = asyncio.create_task(self._live(self._ready))
        return await asyncio.shield(self._ready)

    async def _live(self, ready: asyncio.Future[Any]) -> None:
        """The pool is opened and closed by one task, as its parts may want."""
        try:
            async with self._how.suite.pool(self._sessions, self._browsers) as pool:
                ready.set_result(pool)
                await self._closing.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)


@asynccontextmanager
async def _scratch() -> AsyncIterator[EpisodeStore]:
    folder = tempfile.TemporaryDirectory(prefix="holotron-host-", ignore_cleanup_errors=True)
    try:
        yield EpisodeStore(folder.name, sync="never")
    finally:
        await asyncio.to_thread(folder.cleanup)


def _packed(store: EpisodeStore, counters: Counters) -> Played:
    if not counters.finished:
        return Played(counters, None)
    [info] = store.list_episodes(finished=True)
    steps = [(step, step.observation.image) for step in store.steps(info.id)]
    return Played(counters, info, tuple((step, None if name is None else store.image(name)) for step, name in steps))
