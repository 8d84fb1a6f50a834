"""Browser hosts as Ray actors, spread over the machines of a cluster."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from holotron import __version__
from holotron.agent.chat import ChatModel
from holotron.env.task import Task
from holotron.scale.browser_host import BrowserHost, HostStatus, Played
from holotron.scale.host_fleet import Host, HostGone, HostLost, play_on_hosts
from holotron.scale.ray_extra import import_ray
from holotron.suites.play import Play, Player

NAMESPACE = "holotron"
PREFIX = "browser-host-"
KNOCK_SECONDS = 5.0
CLOSING = 10.0  # seconds in which hosts may close their browsers
DEATHS = 3  # answers that an actor is dead, until it is believed


class ClusterError(OSError):
    """A Ray cluster cannot be used as it is."""


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module `ray`, connected to the cluster; ClusterError where there is none.

    What Ray writes to standard output meanwhile, such as the deaths of its workers, goes to standard error.
    """
    ray = import_ray()
    own = not ray.is_initialized()
    with redirect_stdout(sys.stderr):
        try:
            if own:
                _knock(address)
                # Ray has SIGTERM print a stack and end the process at once; what handled it before goes on doing so.
                with _kept_handler(signal.SIGTERM):
                    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterError(
                f"there is no Ray cluster at {address} ({_last_line(error)}); holotron up starts one"
            ) from error
        try:
            yield ray
        finally:
            if own:
                ray.shutdown()


@contextmanager
def _kept_handler(number: int) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, before)


def _knock(address: str) -> None:
    """OSError at once where nothing listens: Ray itself would ask for more than a minute."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_SECONDS).close()


def on_ray(address: str, endpoint: str | None = None) -> Player:
    """What plays tasks as play_tasks does, on hosts of the cluster. endpoint: of the model that hosts will ask."""
    import_ray()
    return partial(play_on_hosts, partial(open_hosts, address, endpoint))


def check_reachable(endpoint: str | None, machines: set[str]) -> None:
    """ClusterError where an endpoint is one machine's own, and there are others."""
    own = endpoint is not None and urlsplit(endpoint).hostname in ("127.0.0.1", "localhost", "::1", "0.0.0.0")
    if own and len(machines) > 1:
        raise ClusterError(
            f"--endpoint {endpoint} is this machine's own address, and hosts run on {', '.join(sorted(machines))}: "
            "name it by the address that they see"
        )


@asynccontextmanager
async def open_hosts(
    address: str, endpoint: str | None, how: Play, model: ChatModel | None, *, hosts: int, sessions: int, browsers: int
) -> AsyncIterator[Sequence[Host]]:
    """One CPU is reserved for each host; those that find no room wait until a machine has it."""
    run = uuid.uuid4().hex[:8]
    options = {
        "namespace": NAMESPACE,
        "num_cpus": 1,
        "max_restarts": -1,  # elsewhere, if its machine is gone
        "max_concurrency": sessions + 8,  # beside what is played: questions how it is getting on
        "scheduling_strategy": "SPREAD",
    }
    with connected(address) as ray:
        check_reachable(endpoint, {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]})
        actor = ray.remote(BrowserHost)
        actors = [
            actor.options(name=f"{PREFIX}{run}-{number}", **options).remote(how, model, sessions, browsers, True)
            for number in range(hosts)
        ]
        try:
            yield [RayHost(ray, each) for each in actors]
        finally:
            await asyncio.shield(_end(ray, actors))


async def _end(ray: Any, actors: Sequence[Any]) -> None:
    async def end(actor: Any) -> None:
        with suppress(ray.exceptions.RayError, TimeoutError):
            async with asyncio.timeout(CLOSING):
                await actor.close.remote()
        ray.kill(actor)

    await asyncio.gather(*(end(actor) for actor in actors))


@dataclass(frozen=True)
class RayHost:
    """A host of the fleet that is an actor. Ray starts it anew when it dies."""

    ray: Any
    actor: Any

    async def ready(self) -> None:
        errors = self.ray.exceptions
        for attempt in range(DEATHS):
            try:
                status: HostStatus = await self.actor.status.options(max_task_retries=-1).remote()
            except errors.RayTaskError as error:
                raise error.cause from error
            except errors.ActorDiedError as error:
                if attempt == DEATHS - 1:
                    raise HostGone(f"a browser host cannot be started: {_last_line(error)}") from error
            except errors.RayError as error:
                raise HostGone(f"a browser host cannot be asked: {_last_line(error)}") from error
            else:
                if status.version != __version__:
                    raise HostGone(
                        f"{status.machine} has holotron {status.version} installed, and this is {__version__}"
                    )
                return

    async def play(self, task: Task) -> Played:
        errors = self.ray.exceptions
        try:
            played: Played = await self.actor.play.remote(task)
        except errors.RayTaskError as error:
            raise error.cause from error
        except errors.RayError as error:  # its process or its machine, or what it handed back is lost
            raise HostLost(f"a browser host was lost: {_last_line(error)}") from error
        return played


def _last_line(error: Exception) -> str:
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
