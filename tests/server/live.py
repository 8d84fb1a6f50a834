"""A real server in a thread, its engine in a process of its own, over a tiny model that has eyes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
from fastapi import APIRouter

from holotron.engine.options import EngineOptions
from holotron.server.app import ReplicaSet, create_app
from holotron.server.engine_client import EngineClient
from holotron.server.http_server import HttpServer
from holotron.server.loading import load_texts
from holotron.server.settings import ServerSettings
from holotron.server.state import ServerState
from tests.tiny_checkpoint import TINY, write_checkpoint

from .forked import ForkedProcess

__all__ = ["TINY", "Live", "options", "serving", "write_checkpoint"]


@dataclass
class Live:
    """A running server. `state` is its inside, for what cannot be seen from outside."""

    url: str
    state: ServerState
    loop: asyncio.AbstractEventLoop
    server: HttpServer

    def client(self, key: str | None = None, **options: object) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False, verify=False, **options)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The engine stands still, so that a turn under way does not end however long the machine takes."""
        self._call("pause", "keep")
        try:
            yield
        finally:
            self._call("unpause")

    def _call(self, *message: object) -> None:
        asyncio.run_coroutine_threadsafe(self.state.client.call(*message), self.loop).result(60)


FORKED = ReplicaSet(lambda start: EngineClient(start, launch=ForkedProcess.start), APIRouter())


def options(folder: Path, **changes: object) -> EngineOptions:
    values = {"memory_gib": 0.05, "host_gib": 0.05, "max_context": 4096, "tokens_per_session": 512, "threads": 1}
    return EngineOptions(model=str(folder), device="cpu", **(values | changes))


@contextmanager
def serving(
    folder: Path, engine: dict[str, object] | None = None, replicas: ReplicaSet | None = FORKED, **settings: object
) -> Iterator[Live]:
    """replicas: None has the engine's process started as `holotron serve` does, and again where it dies."""
    settings = {"grace_seconds": 5.0} | settings
    wanted = ServerSettings(engine=options(folder, **(engine or {})), served_name="tiny", **settings)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    wanted = replace(wanted, port=port)
    failures: list[str] = []
    app = create_app(wanted, load_texts(wanted.engine), failures.append, replicas=replicas)
    server = HttpServer(app, wanted)
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    while not server.started or app.state.server.client.ready is None:
        thread.join(0.02)
        assert thread.is_alive(), "the server did not start"
        assert not failures, failures
    try:
        yield Live(f"http://127.0.0.1:{port}", app.state.server, loops[0], server)
    finally:
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive(), "the server did not stop"
