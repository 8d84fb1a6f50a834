"""What only the operator may do: pause, replace the weights, free the GPU for a while."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Query, Request

from holotron.server.engine_client import EngineRefused
from holotron.server.errors import ApiError, as_api_error
from holotron.server.response_models import ERRORS, Done, ErrorAnswer
from holotron.server.schemas import AdapterRequest, PauseRequest, SleepRequest, UpdateRequest
from holotron.server.state import ServerState, StateDep, admin_of

router = APIRouter(prefix="/admin", responses=ERRORS, dependencies=[Depends(admin_of)])


@router.get("/status", response_model=Done)
async def status(state: StateDep) -> Any:
    """What the engine last told about itself."""
    stats = state.client.stats
    epoch = int(stats.values.get("epoch", 0))
    return {
        "ok": True,
        "weight_version": state.client.version_of(epoch),
        "engine_pid": state.client.pid,
        "engine_restarts": state.client.restarts,
        "open_sessions": len(state.sessions),
        "turns": state.admission.total,
        "engine": stats.values,
        "sessions": stats.residency,
    }


@router.post("/pause", response_model=Done)
async def pause(state: StateDep, body: PauseRequest | None = None) -> Any:
    """Stop computing. keep: turns stay where they are until resumed; wait: finish them first; abort: cancel them."""
    await state.control.pause((body or PauseRequest()).mode)
    return {"ok": True}


@router.post("/resume", response_model=Done)
async def resume(state: StateDep) -> Any:
    await state.control.resume()
    return {"ok": True}


@router.post("/sleep", response_model=Done)
async def sleep(state: StateDep, body: SleepRequest | None = None) -> Any:
    """Give the device's memory back: sessions go to the host, with `weights` the model too."""
    await state.control.sleep((body or SleepRequest()).weights)
    return {"ok": True}


@router.post("/wake", response_model=Done)
async def wake(state: StateDep) -> Any:
    await state.control.wake()
    return {"ok": True}


@router.post("/update_weights", response_model=Done)
async def update_weights(state: StateDep, body: UpdateRequest) -> Any:
    """New weights from a folder or a safetensors file that the server can read. Sessions go on.

    An engine that is started again reads them anew: leave the files as they are until the next update.
    """
    return await _update(state, body.path, body.version, "path")


@router.put(
    "/weights",
    response_model=Done,
    responses={507: {"model": ErrorAnswer}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def put_weights(
    http: Request, state: StateDep, version: str | None = Query(None, min_length=1, max_length=128)
) -> Any:
    """New weights from another process, which sends a safetensors file: the checkpoint's own names, all or a part."""
    spool = tempfile.TemporaryDirectory(prefix="holotron-weights-")
    try:
        path = Path(spool.name) / "weights.safetensors"
        try:
            with path.open("wb") as file:
                async for chunk in http.stream():
                    file.write(chunk)
        except OSError as error:
            raise ApiError(507, f"the weights could not be stored: {error.strerror}", code="no_room") from error
        return await _update(state, str(path), version, "body", spool)
    except BaseException:
        spool.cleanup()
        raise


@router.put("/adapters/{name}", response_model=Done)
async def put_adapter(state: StateDep, name: str, body: AdapterRequest) -> Any:
    """Serve a LoRA adapter as the model of that name, in place of the one that it was.

    Open sessions go on with the adapter that they were opened with; where a trainer names a version, its layers and
    rank are those of before, and they go on with the new values. An engine that is started again reads the folder anew:
    leave it as it is.
    """
    try:
        state.settings.check_adapter(name)
        await state.client.set_adapter(name, body.path, body.version)
    except (ValueError, EngineRefused) as error:
        raise ApiError(400, f"path: {error}", param="path") from error
    return {"ok": True}


@router.get("/checksum", response_model=Done)
async def checksum(state: StateDep, adapter: str = Query("", max_length=128)) -> Any:
    """Of the weights, or of an adapter: whether they are those that a trainer has."""
    if adapter and adapter not in state.client.adapters:
        raise ApiError(404, f"there is no adapter {adapter!r}", param="adapter", code="model_not_found")
    return {"ok": True} | await state.client.call("held_checksum", adapter or None)


@router.delete("/adapters/{name}", response_model=Done)
async def delete_adapter(state: StateDep, name: str) -> Any:
    """Serve an adapter no longer; 409 while sessions are open with it."""
    if name not in state.client.adapters:
        raise ApiError(404, f"there is no adapter {name[:128]!r}", param="name", code="model_not_found")
    await state.client.set_adapter(name, None)
    return {"ok": True}


async def _update(
    state: ServerState,
    path: str,
    version: str | None,
    field: str,
    spool: tempfile.TemporaryDirectory[str] | None = None,
) -> dict[str, Any]:
    try:
        return {"ok": True} | await state.control.update_weights(path, version, spool)
    except EngineRefused as error:
        refusal = as_api_error(error)
        raise ApiError(refusal.status, f"{field}: {error}", param=field, code=refusal.code) from error
