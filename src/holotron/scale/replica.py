"""An engine as a Ray actor, and how the front speaks with it: over a socket of their own, as with one on its machine.

Ray places the actor, gives it a GPU and starts it again; tokens and screenshots do not go through Ray.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from holotron.scale.handshake import NONCE, connect, prove
from holotron.scale.ray_extra import import_ray
from holotron.server import messages as m
from holotron.server.channel import Channel
from holotron.server.engine_client import EngineClient
from holotron.server.log_lines import write_logs
from holotron.server.worker import serve

log = logging.getLogger(__name__)


class EngineReplica:
    """The actor. It serves one front at a time, in a thread; whoever connects must know the key."""

    def __init__(self, key: bytes, log_format: str) -> None:
        write_logs(log_format, logging.WARNING, process="engine")
        self._key = key
        self._host: str = import_ray().util.get_node_ip_address()
        self._listener = socket.create_server((self._host, 0))
        threading.Thread(target=self._listen, name="replica", daemon=True).start()

    def address(self) -> tuple[str, int, int]:
        """Where it listens, and its process."""
        return self._host, self._listener.getsockname()[1], os.getpid()

    def _listen(self) -> None:
        while True:
            end, _ = self._listener.accept()
            try:
                prove(end, self._key, front=False)
            except (OSError, ValueError) as error:
                log.warning("a connection was refused: %s", error)
                end.close()
                continue
            try:
                with suppress(StopAsyncIteration):
                    asyncio.run(serve(end))
            except BaseException:
                log.exception("the replica cannot go on; Ray starts another")
                os._exit(1)


@dataclass
class RayProcess:
    """One life of a replica, as the front sees it."""

    channel: Channel
    host: str
    pid: int | None

    @classmethod
    async def start(cls, actor: Any, key: bytes) -> Self:
        """Connect to the actor; waits for as long as Ray needs to place it, or to start it again."""
        host, port, pid = await actor.address.remote()
        end = await asyncio.to_thread(connect, host, port, key)
        return cls(await Channel.open(end), host, pid)

    async def end(self, loading: bool) -> int | None:
        self.channel.close()
        return None


class RayReplicas:
    """Makes actors on the cluster that `ray` is connected to, a GPU each where the engine runs on one."""

    def __init__(self, ray: Any, *, on_gpu: bool, log_format: str = "json") -> None:
        self._ray = ray
        self._key = secrets.token_bytes(NONCE)
        self._gpus = float(on_gpu and self._ray.cluster_resources().get("GPU", 0) > 0)
        self._log_format = log_format
        self._actors: dict[str, Any] = {}

    async def launch(self, name: str) -> RayProcess:
        """Connect to the replica of that name, made if there is none."""
        if name not in self._actors:
            placed = self._ray.remote(
                num_cpus=1, num_gpus=self._gpus, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
            )
            self._actors[name] = placed(EngineReplica).remote(self._key, self._log_format)
        return await RayProcess.start(self._actors[name], self._key)

    def remove(self, name: str) -> None:
        if (actor := self._actors.pop(name, None)) is not None:
            self._ray.kill(actor)


class RayClient(EngineClient):
    """The client of one replica, whose actor ends with it."""

    def __init__(self, name: str, replicas: RayReplicas, start: m.Start, on_loss: Callable[[], None]) -> None:
        super().__init__(start, on_loss, launch=lambda: replicas.launch(name))
        self._name, self._replicas = name, replicas

    async def close(self) -> None:
        await super().close()
        self._replicas.remove(self._name)
