"""SGLang's API as RL stacks call it: generation, pauses, weights from disk and over `torch.distributed`, health."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from holotron import __version__
from holotron.engine.weight_spec import GroupAddress
from holotron.server.answer import respond
from holotron.server.bodies import BodyRoute
from holotron.server.engine_client import EngineDown, EngineRefused
from holotron.server.errors import ApiError, as_api_error
from holotron.server.health_routes import health
from holotron.server.sglang_generate import begin_generate
from holotron.server.sglang_schemas import (
    DiskUpdate,
    DistributedUpdate,
    GenerateRequest,
    GroupRequest,
    MemoryTags,
    NamedGroup,
    NewVersion,
    SglangPause,
)
from holotron.server.state import CallerDep, ServerState, StateDep, admin_of, caller_of

router = APIRouter(route_class=BodyRoute)
operator = [Depends(admin_of)]
anyone = [Depends(caller_of)]
PAUSES = {"abort": "abort", "in_place": "keep", "retract": "retract"}


@router.post("/generate", response_model=None)
async def generate(http: Request, state: StateDep, caller: CallerDep, body: GenerateRequest) -> Response:
    """Tokens from token ids or a text, with log-probabilities under the distribution that they were drawn from."""
    return await respond(http, begin_generate(state, body, caller))


# ---- what is served ----


@router.get("/health_generate")
async def health_generate(state: StateDep) -> Any:
    """Whether a token can be computed; of an engine that was told to stand still, whether it is there."""
    return await health(state, deep=not (state.control.paused or state.control.asleep))


@router.get("/get_model_info", dependencies=anyone)
@router.get("/model_info", dependencies=anyone)
async def model_info(state: StateDep) -> Any:
    model = state.settings.engine.model
    return {
        "model_path": model,
        "tokenizer_path": model,
        "is_generation": True,
        "has_image_understanding": state.texts.config.vision is not None,
        "preferred_sampling_params": None,
        "weight_version": state.client.version,
    }


@router.get("/get_weight_version", dependencies=anyone)
async def get_weight_version(state: StateDep) -> Any:
    return {"weight_version": state.client.version}


@router.get("/v1/loads", dependencies=anyone)
@router.get("/get_load", dependencies=anyone)
async def loads(state: StateDep) -> Any:
    """How many requests are under way; SGLang tells it for each replica, and here is one."""
    total = state.admission.total
    waiting = min(total, int(state.client.stats.values.get("waiting", 0)))
    counts = {"num_reqs": total, "num_running_reqs": total - waiting, "num_waiting_reqs": waiting}
    return {"loads": [{"dp_rank": 0, **counts}]}


@router.get("/get_server_info", dependencies=anyone)
async def get_server_info(state: StateDep) -> Any:
    return server_info(state)


def server_info(state: ServerState) -> dict[str, Any]:
    """What slime compares with what it expects: one process on one device."""
    return {
        "model_path": state.settings.engine.model,
        "served_model_name": state.settings.model_name,
        "tp_size": 1,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "nnodes": 1,
        "node_rank": 0,
        "num_gpus": 1,
        "gpu_id_step": 1,
        "base_gpu_id": 0,
        "enable_memory_saver": False,
        "disaggregation_mode": "null",
        "max_total_num_tokens": state.max_context,
        "weight_version": state.client.version,
        "version": __version__,
    }


# ---- the engine ----


@router.post("/pause_generation", dependencies=operator)
async def pause_generation(state: StateDep, body: SglangPause | None = None) -> Any:
    """abort: turns are ended. in_place: they stay as they are. retract: they compute what they remember again."""
    await state.control.pause(PAUSES[(body or SglangPause()).mode])
    return {"status": "ok", "message": "Generation paused successfully."}


@router.post("/continue_generation", dependencies=operator)
async def continue_generation(state: StateDep) -> Any:
    """Go on. Weights that came over groups during the pause are taken here, all of them in one step."""
    await state.control.resume()
    return {"status": "ok", "message": "Generation continued successfully.", "weight_version": state.client.version}


@router.api_route("/flush_cache", methods=["GET", "POST"], dependencies=operator)
async def flush_cache(state: StateDep) -> Response:
    """Forget what requests left behind; 400 while some are under way."""
    if total := state.admission.total:
        return PlainTextResponse(f"{total} requests are under way; the cache was not flushed.\n", 400)
    await state.control.flush()
    return PlainTextResponse("Cache flushed.\n")


@router.post("/release_memory_occupation", dependencies=operator)
async def release_memory_occupation(state: StateDep, body: MemoryTags | None = None) -> Any:
    """Give the device's memory back: the sessions', and unless tags leave them out the weights' too."""
    tags = (body or MemoryTags()).tags
    await state.control.sleep(weights=tags is None or "weights" in tags)
    return {"status": "ok"}


@router.post("/resume_memory_occupation", dependencies=operator)
async def resume_memory_occupation(state: StateDep, body: MemoryTags | None = None) -> Any:
    """Take the memory back. In stages, the first wakes all of it, and the others find it awake."""
    await state.control.wake()
    return {"status": "ok"}


# ---- weights ----


@router.post("/update_weights_from_disk", dependencies=operator)
async def update_weights_from_disk(state: StateDep, body: DiskUpdate) -> Response:
    async def update() -> str:
        _abort_all(state, body.abort_all_requests)
        told = await state.control.update_weights(body.model_path, body.weight_version)
        return f"the weights are those of version {told['weight_version']}"

    return await _outcome(update(), num_paused_requests=0)


@router.post("/init_weights_update_group", dependencies=operator)
async def init_weights_update_group(state: StateDep, body: GroupRequest) -> Response:
    """Join a group of `torch.distributed` whose first rank is the trainer. This server is one rank, `rank_offset`."""

    async def join() -> str:
        host = body.master_address.strip("[]")
        place = (body.group_name, host, body.master_port, body.rank_offset, body.world_size, body.backend)
        await state.control.join_group(GroupAddress(*place))
        return f"joined {body.group_name} as rank {body.rank_offset} of {body.world_size}"

    return await _outcome(join())


@router.post("/destroy_weights_update_group", dependencies=operator)
async def destroy_weights_update_group(state: StateDep, body: NamedGroup) -> Response:
    async def leave() -> str:
        await state.control.leave_group(body.group_name)
        return f"left {body.group_name}"

    return await _outcome(leave())


@router.post("/update_weights_from_distributed", dependencies=operator)
async def update_weights_from_distributed(state: StateDep, body: DistributedUpdate) -> Response:
    """Receive a bucket of weights. In a pause they are kept until it ends; otherwise they are taken at once."""

    async def receive() -> str:
        _abort_all(state, body.abort_all_requests)
        announced = zip(body.names, body.dtypes, body.shapes, strict=True)
        await state.control.receive(body.group_name, announced, body.weight_version, body.load_format is not None)
        return f"{len(body.names)} tensors came"

    return await _outcome(receive())


@router.post("/update_weights_from_tensor", dependencies=operator)
async def update_weights_from_tensor() -> Response:
    async def refuse() -> str:
        raise ApiError(
            400, "tensors in pickles are not read; send weights over a group or from disk", code="unsupported"
        )

    return await _outcome(refuse())


@router.post("/update_weight_version", dependencies=operator)
async def update_weight_version(state: StateDep, body: NewVersion) -> Any:
    """Another name for the weights of now."""
    _abort_all(state, body.abort_all_requests)
    state.client.version = body.new_version
    return {"success": True, "message": f"the weights are {body.new_version}", "new_version": body.new_version}


def _abort_all(state: ServerState, wanted: bool) -> None:
    if wanted:
        state.running.abort(None, None)


async def _outcome(work: Awaitable[str], **more: Any) -> Response:
    """What came of it as SGLang tells it, which has no other form for errors."""
    try:
        message = await work
    except (ApiError, EngineDown, EngineRefused, ValueError) as error:
        found = as_api_error(error) if not isinstance(error, ValueError) else ApiError(400, str(error))
        return JSONResponse({"success": False, "message": found.message} | found.body() | more, found.status)
    return JSONResponse({"success": True, "message": message} | more)
