"""Tasks played as they come, on hosts of a cluster: the rollout side of online RL on many machines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from holotron.agent.chat import ChatModel
from holotron.env.task import Task
from holotron.episodes.fleet import Counters
from holotron.episodes.record import EpisodeInfo
from holotron.episodes.store import EpisodeStore
from holotron.episodes.worker_pool import Share
from holotron.scale.host_fleet import Host, HostRun, OpenHosts
from holotron.scale.ray_hosts import connected, open_hosts
from holotron.scale.shared_model import SharedModelHost
from holotron.suites.live_play import Coming, Ended, LivePlay, TaskQueue
from holotron.suites.play import Play


class LiveHostPlay(LivePlay):
    """LivePlay with hosts for worker processes: a lost host costs the current try of what it played."""

    def __init__(
        self, opening: OpenHosts, how: Play, model: ChatModel, *, sessions: int, browsers: int = 1, workers: int = 1
    ) -> None:
        super().__init__(how, model, sessions=sessions, browsers=browsers, workers=workers)
        self._each = -(-sessions // workers)
        self._opening = partial(opening, how, model, hosts=workers, sessions=self._each, browsers=browsers)

    async def _play(self, tasks: TaskQueue) -> None:
        def on_change(counters: Counters) -> None:
            self._heard(0, replace(counters, running=0))

        def on_end(task: Task, info: EpisodeInfo | None) -> None:
            self._heard(0, Ended(task, info))

        run = HostRun(EpisodeStore(self._how.store), Share(()), Counters(), on_change, on_end)

        async def give() -> None:
            async for task in Coming(tasks):
                run.put(task)
            run.over.set()

        async with self._opening() as hosts:
            giving = asyncio.create_task(give())
            try:
                await run.play(hosts, self._each)
            finally:
                tasks.leave()  # a thread that still waits for a task would keep this process from ending
                giving.cancel()


@asynccontextmanager
async def open_hosts_and_model(
    address: str, how: Play, model: ChatModel | None, *, hosts: int, sessions: int, browsers: int
) -> AsyncIterator[Sequence[Host]]:
    """Hosts of a Ray cluster that ask a model of this process, which runs on one of the cluster's machines."""
    assert model is not None
    with connected(address) as ray, SharedModelHost(model, ray.util.get_node_ip_address()) as shared:
        asked = shared.shared()
        async with open_hosts(address, None, how, asked, hosts=hosts, sessions=sessions, browsers=browsers) as opened:
            yield opened


def live_on_ray(address: str) -> partial[LiveHostPlay]:
    """What an online run plays with in place of LivePlay."""
    return partial(LiveHostPlay, partial(open_hosts_and_model, address))
