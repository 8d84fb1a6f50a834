"""Tasks played as they come: browsers that stay open while the one who gives tasks decides what is next."""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

from holotron.agent.chat import ChatModel
from holotron.agent.model_processes import ModelProcesses
from holotron.env.task import Task, TaskKey
from holotron.episodes.errors import Damaged, EpisodeError
from holotron.episodes.fleet import Counters, Fleet
from holotron.episodes.record import EpisodeInfo
from holotron.episodes.store import EpisodeStore, id_of
from holotron.episodes.worker_pool import Share, WorkerDied, share_out
from holotron.suites.play import Play, now_and_then

PATIENCE = 0.5  # seconds after which a thread that waits for a task looks whether it still should
MOST_DEATHS = 20  # of worker processes: then something is wrong that another start does not help


class Ended(NamedTuple):
    """A task that was played; info is None where the infrastructure lost it."""

    task: Task
    info: EpisodeInfo | None


class LivePlay:
    """Plays tasks in a thread of its own, as a context manager. `ended` has what came of each, in the order of ends.

    Attempts at one task and seed that are put one after another are asked of one copy of the model, where their first
    prompt is computed once. What the store has finished is not played again. Where a worker process dies, all are
    started anew with the tasks that were in hand. An error that is no episode's is raised by `take`. At its end what is
    being played is left.
    """

    def __init__(self, how: Play, model: ChatModel, *, sessions: int, browsers: int = 1, workers: int = 1) -> None:
        self._how, self._model, self._workers = how, model, workers
        self._work = partial(_work, how, -(-sessions // workers), browsers)
        self._store = EpisodeStore(how.store)
        self._ended: queue.Queue[Ended | BaseException] = queue.Queue()
        self._in_hand: dict[TaskKey, tuple[Task, int]] = {}  # with the copy that is asked
        self._last: tuple[tuple[str, int | None], int] | None = None
        self._lock = threading.Lock()
        self._copies = min(workers, model.count) if isinstance(model, ModelProcesses) else 1
        self._tasks = TaskQueue(self._copies)  # made anew with the processes
        self._closing = False
        self._playing: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._counted: list[dict[int, Counters]] = [{}]
        self._thread = threading.Thread(target=self._run, name="live-play", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._tasks.close()
        if self._playing is not None:
            loop, task = self._playing
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(task.cancel)
        self._thread.join()

    def put(self, task: Task) -> None:
        """Have a task played, or taken from the store."""
        info = self._finished(task)
        if info is not None:
            self._ended.put(Ended(task, info))
            return
        with self._lock:
            copy = self._copy_for(task.key)
            self._in_hand[task.key] = task, copy
            self._tasks.put(task, copy)

    def _copy_for(self, key: TaskKey) -> int:
        """That of the attempt before, else the one with the least in hand for each of its workers."""
        if self._last is None or self._last[0] != key[:2]:
            busy = Counter(copy for _, copy in self._in_hand.values())
            workers = [len(range(copy, self._workers, self._copies)) for copy in range(self._copies)]
            self._last = key[:2], min(range(self._copies), key=lambda copy: busy[copy] / workers[copy])
        return self._last[1]

    def take(self, seconds: float | None = None) -> Ended | None:
        """The next that ended; None after so many seconds without one."""
        try:
            found = self._ended.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def counters(self) -> Counters:
        """How all workers are getting on, since the beginning."""
        counters = Counters()
        for workers in self._counted:
            for each in list(workers.values()):
                counters.add(each)
        return counters

    def _finished(self, task: Task) -> EpisodeInfo | None:
        try:
            info = self._store.info(id_of(self._store.key(task)))
        except (EpisodeError, Damaged):
            return None
        return info if info.counts else None

    # ---- the thread ----

    def _run(self) -> None:
        deaths = 0
        while True:
            try:
                asyncio.run(self._cancellable())
                return
            except asyncio.CancelledError:
                return
            except WorkerDied as error:
                deaths += 1
                if self._closing:
                    return
                if deaths > MOST_DEATHS:
                    self._ended.put(error)
                    return
                self._begin_anew()
            except BaseException as error:
                self._ended.put(error)
                return

    async def _cancellable(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._playing = asyncio.get_running_loop(), task
        if not self._closing:
            await self._play(self._tasks)

    async def _play(self, tasks: TaskQueue) -> None:
        await share_out(
            partial(self._work, tasks), (), self._model, workers=self._workers, on_report=self._heard, together=True
        )

    def _begin_anew(self) -> None:
        with self._lock:
            self._counted.append({})
            self._tasks.close()
            self._tasks = TaskQueue(self._copies)
            left = list(self._in_hand.values())
            self._in_hand.clear()
        for task, _ in left:
            self.put(task)

    def _heard(self, number: int, value: Counters | Ended) -> None:
        if isinstance(value, Counters):
            self._counted[-1][number] = value
            return
        with self._lock:
            known, _ = self._in_hand.pop(value.task.key, (None, 0))
        if known is not None:
            self._ended.put(Ended(known, value.info))


class TaskQueue:
    """Tasks on their way to worker processes, of each copy of a model that those ask.

    Workers only read: what they write might keep them from ending.
    """

    def __init__(self, copies: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._queues, self._closed, self._left = [spawn.Queue() for _ in range(copies)], spawn.Event(), False

    def put(self, task: Task, copy: int) -> None:
        self._queues[copy].put(task)

    def get(self, worker: int) -> Task | None:
        """The next; None if there are no more to be played here."""
        while not (self._left or self._closed.is_set()):
            with suppress(queue.Empty):
                return self._queues[worker % len(self._queues)].get(timeout=PATIENCE)
        return None

    def leave(self) -> None:
        """This process takes no more."""
        self._left = True

    def close(self) -> None:
        """What is still in it is not played, nor waited for until it is sent."""
        self._closed.set()
        for each in self._queues:
            each.cancel_join_thread()


class Coming(AsyncIterator[Task]):
    """The tasks of a queue between processes, for several to iterate at once; one thread waits for all of them."""

    def __init__(self, tasks: TaskQueue, worker: int = 0) -> None:
        self._tasks, self._worker, self._turn = tasks, worker, asyncio.Lock()

    async def __anext__(self) -> Task:
        async with self._turn:
            task = await asyncio.to_thread(self._tasks.get, self._worker)
        if task is None:
            raise StopAsyncIteration
        return task


async def _work(how: Play, sessions: int, browsers: int, tasks: TaskQueue, share: Share[Any]) -> None:
    """What one worker does."""
    async with how.suite.pool(sessions, browsers) as pool:
        fleet = Fleet(
            EpisodeStore(how.store, sync="never"),
            how.attempts(pool, share.model),
            how.policy,
            how.suite.environment,
            sessions=sessions,
            on_change=now_and_then(lambda counters: share.report(replace(counters, running=0))),
            on_episode=lambda info: share.report(Ended(info.task, info)),
            on_lost=lambda task: share.report(Ended(task, None)),
        )
        try:
            await fleet.play(Coming(tasks, share.number))
        finally:
            tasks.leave()  # a thread that still waits for a task would keep this process from ending
