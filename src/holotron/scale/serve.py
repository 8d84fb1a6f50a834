"""`holotron serve --replicas`: one server in front of several engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holotron.scale.replica_routes import router
from holotron.scale.router import NewClient, ReplicaRouter
from holotron.server import messages as m
from holotron.server.app import ReplicaSet
from holotron.server.engine_client import EngineClient
from holotron.server.settings import ServerSettings


def replica_set(settings: ServerSettings, count: int, ray_address: str | None = None) -> ReplicaSet:
    """So many engines on this machine, a GPU each where it has them, or as actors on a Ray cluster."""
    new_client = _on_ray(settings, ray_address) if ray_address is not None else _here(settings)
    return ReplicaSet(lambda start: ReplicaRouter(start, count, new_client), router)


def _here(settings: ServerSettings) -> NewClient:
    gpus = _gpus() if settings.engine.device in (None, "cuda") else 0

    def new_client(name: str, start: m.Start, on_loss: Callable[[], None]) -> EngineClient:
        device = f"cuda:{int(name) % gpus}" if gpus > 1 else settings.engine.device
        return EngineClient(replace(start, engine=replace(start.engine, device=device)), on_loss, settings.log_format)

    return new_client


def _on_ray(settings: ServerSettings, address: str) -> NewClient:
    from holotron.scale.replica import RayClient, RayReplicas

    replicas = RayReplicas(address, on_gpu=settings.engine.device != "cpu", log_format=settings.log_format)
    return lambda name, start, on_loss: RayClient(name, replicas, start, on_loss)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
