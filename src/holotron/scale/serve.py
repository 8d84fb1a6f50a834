"""`holotron serve --replicas`: one server in front of several engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from holotron.scale.disk_journal import DiskJournal
from holotron.scale.durable_router import DurableRouter
from holotron.scale.replica_routes import router
from holotron.scale.router import NewClient, ReplicaRouter
from holotron.server import messages as m
from holotron.server.app import ReplicaSet
from holotron.server.engine_client import EngineClient
from holotron.server.settings import ServerSettings


@contextmanager
def replica_set(
    settings: ServerSettings, count: int, ray_address: str | None = None, journal: Path | None = None
) -> Iterator[ReplicaSet]:
    """So many engines on this machine, a GPU each where it has them, or as actors on a Ray cluster.

    journal: a folder in which sessions outlive this process. OSError where it is not for this server.
    """
    disk = None if journal is None else DiskJournal(journal, settings.engine.model)
    if ray_address is None:
        yield several(count, _here(settings), disk)
        return
    from holotron.scale.ray_hosts import connected
    from holotron.scale.replica import RayClient, RayReplicas

    with connected(ray_address) as ray:
        replicas = RayReplicas(ray, on_gpu=settings.engine.device != "cpu", log_format=settings.log_format)
        yield several(count, lambda name, start, on_loss: RayClient(name, replicas, start, on_loss), disk)


def several(count: int, new_client: NewClient, disk: DiskJournal | None) -> ReplicaSet:
    if disk is None:
        return ReplicaSet(lambda start: ReplicaRouter(start, count, new_client), router)
    return ReplicaSet(lambda start: DurableRouter(start, count, new_client, disk), router)


def _here(settings: ServerSettings) -> NewClient:
    import torch

    gpus = torch.cuda.device_count() if settings.engine.device in (None, "cuda") else 0

    def new_client(name: str, start: m.Start, on_loss: Callable[[], None]) -> EngineClient:
        device = f"cuda:{int(name) % gpus}" if gpus > 1 else settings.engine.device
        return EngineClient(replace(start, engine=replace(start.engine, device=device)), on_loss, settings.log_format)

    return new_client
