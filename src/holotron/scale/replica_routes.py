"""What the operator sees of replicas, and does to them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends

from holotron.scale.directory import Replica
from holotron.scale.router import ReplicaRouter
from holotron.server.errors import ApiError
from holotron.server.response_models import ERRORS, Done
from holotron.server.state import StateDep, admin_of

router = APIRouter(prefix="/admin/replicas", responses=ERRORS, dependencies=[Depends(admin_of)])
MOST = 1024


async def _router(state: StateDep) -> ReplicaRouter:
    assert isinstance(state.client, ReplicaRouter)
    return state.client


RouterDep = Annotated[ReplicaRouter, Depends(_router)]


def _told(replica: Replica) -> dict[str, Any]:
    client = replica.client
    return {
        "name": replica.name,
        "host": client.host,
        "pid": client.pid,
        "state": "draining" if replica.draining else "up" if replica.is_up else "down",
        "sessions": len(replica.sessions),
        "turns": replica.turns,
        "restarts": client.restarts,
        "engine": client.stats.values,
    }


@router.get("", response_model=Done)
async def status(replicas: RouterDep) -> Any:
    """Every replica, and how many sessions were moved, rebuilt and lost."""
    told = [_told(replica) for replica in replicas.directory.replicas.values()]
    return {"ok": True, "replicas": told, **replicas.counts, "open_sessions": len(replicas.directory.places)}


@router.post("", response_model=Done)
async def resize(replicas: RouterDep, count: Annotated[int, Body(embed=True, ge=1, le=MOST)]) -> Any:
    """Have so many replicas. Those that are too many are drained first: their sessions move to the others."""
    await replicas.resize(count)
    return await status(replicas)


@router.post("/rebalance", response_model=Done)
async def rebalance(replicas: RouterDep) -> Any:
    """Move sessions from full replicas to empty ones."""
    await replicas.rebalance()
    return await status(replicas)


@router.post("/{name}/replace", response_model=Done)
async def replace(replicas: RouterDep, name: str) -> Any:
    """Move a replica's sessions away and start another in its place: one after another, code is updated so."""
    if name not in replicas.directory.replicas:
        raise ApiError(404, f"there is no replica {name[:128]!r}", param="name", code="not_found")
    await replicas.replace_replica(name)
    return await status(replicas)
