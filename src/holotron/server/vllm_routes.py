"""vLLM's routes for RL as prime-rl and TRL call them: pauses, weights, adapters, tokens in and out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from holotron.engine.weight_spec import PACKED_BYTES, GroupAddress
from holotron.server.answer import respond
from holotron.server.auth import Caller
from holotron.server.bodies import BodyRoute
from holotron.server.completions import CompletionAnswer, begin_completion
from holotron.server.engine_client import EngineRefused
from holotron.server.errors import ApiError, as_api_error, blaming, field_error, renaming
from holotron.server.logprobs import chat_logprobs
from holotron.server.schemas import CompletionRequest
from holotron.server.sglang_routes import anyone, operator, server_info
from holotron.server.sglang_schemas import NamedAdapter
from holotron.server.state import CallerDep, ServerState, StateDep
from holotron.server.translation import translated
from holotron.server.turns import Choice
from holotron.server.vllm_schemas import (
    FinishUpdate,
    RpcRequest,
    TokensRequest,
    TransferRequest,
    UpdateInfo,
    VllmUpdate,
    WeightCheck,
)

router = APIRouter(route_class=BodyRoute)
GROUP = "weight_transfer"
MAX_RANK, MAX_ADAPTERS = 1024, 1024  # that are told to trainers which compare them with what they need


# ---- generation ----


class TokensAnswer(CompletionAnswer):
    """A completion in token ids."""

    def logprobs(self, choice: Choice, start: int) -> dict[str, Any] | None:
        if self.request.logprobs is None:
            return None
        content = chat_logprobs(self._names, choice.token_ids, choice.logprobs)
        for entry, id_ in zip(content, choice.token_ids, strict=True):
            entry["token_id"] = id_
        return {"content": content}

    def body(self, choice: Choice) -> dict[str, Any]:
        return {}

    def result(self) -> Any:
        told = super().result()
        return {"request_id": told["id"]} | told


@router.post("/inference/v1/generate", response_model=None)
async def generate_tokens(http: Request, state: StateDep, caller: CallerDep, body: TokensRequest) -> Response:
    return await respond(http, _begin(state, body, caller))


async def _begin(state: ServerState, body: TokensRequest, caller: Caller) -> CompletionAnswer:
    values = body.as_fields()
    fields = {name: f"sampling_params.{name}" for name in body.sampling_params}
    fields |= {"prompt": "token_ids", "images": "content_parts"}
    with renaming(fields):
        request = translated(CompletionRequest, values, fields, state.settings.strict)
        answer = await begin_completion(state, request, caller, TokensAnswer)
    if body.request_id is not None:
        answer.head["id"] = body.request_id
    return answer


# ---- what is served ----


@router.get("/server_info", dependencies=anyone)
async def vllm_server_info(state: StateDep) -> Any:
    """SGLang's keys, and those of vLLM's configuration that trainers read."""
    vllm_config = {
        "model_config": {"model": state.settings.engine.model, "max_model_len": state.max_context},
        "parallel_config": {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1},
        "lora_config": {"max_lora_rank": MAX_RANK, "max_loras": MAX_ADAPTERS},
        "weight_transfer_config": None,  # vLLM's own way to meet over NCCL is not spoken here
    }
    return server_info(state) | {"vllm_config": vllm_config}


@router.get("/get_world_size", dependencies=anyone)
@router.get("/get_world_size/", dependencies=anyone)
async def get_world_size(state: StateDep) -> Any:
    return {"world_size": 1}


@router.get("/weight_info", dependencies=anyone)
async def weight_info(state: StateDep) -> Any:
    return {"weight_version": state.client.version}


@router.get("/is_paused", dependencies=anyone)
async def is_paused(state: StateDep) -> Any:
    return {"is_paused": state.control.paused}


@router.get("/is_sleeping", dependencies=anyone)
async def is_sleeping(state: StateDep) -> Any:
    return {"is_sleeping": state.control.asleep}


@router.get("/liveness")
async def liveness() -> Any:
    return {"status": "ok"}


# ---- the engine ----


@router.post("/pause", dependencies=operator)
async def pause(state: StateDep, mode: Annotated[Literal["abort", "wait", "keep"], Query()] = "abort") -> Any:
    await state.control.pause(mode)
    return {"status": "paused"}


@router.post("/resume", dependencies=operator)
async def resume(state: StateDep) -> Any:
    await state.control.resume()
    return {"status": "resumed"}


@router.post("/sleep", dependencies=operator)
async def sleep(state: StateDep, level: Annotated[int, Query(ge=1, le=2)] = 1) -> Any:
    """Level 1 and 2: sessions and weights go to host memory. What level 2 throws away elsewhere is kept here."""
    await state.control.sleep(weights=True)
    return {"status": "sleeping", "level": level}


@router.post("/wake_up", dependencies=operator)
async def wake_up(state: StateDep, tags: Annotated[list[str] | None, Query()] = None) -> Any:
    await state.control.wake()
    return {"status": "awake"}


@router.post("/reset_prefix_cache", dependencies=operator)
async def reset_prefix_cache(state: StateDep) -> Any:
    """Forget what requests left behind; those under way go on."""
    await state.control.flush()
    return {"status": "ok"}


# ---- weights ----


@router.post("/update_weights", dependencies=operator)
async def update_weights(state: StateDep, body: VllmUpdate) -> Any:
    """From a folder, as prime-rl has it (its name is the version), or from the trainer that broadcasts now."""
    if body.weight_dir is not None:
        return await _from_folder(state, body.weight_dir, "weight_dir")
    assert body.update_info is not None
    await _receive(state, body.update_info)
    return {"message": "Weights updated"}


@router.post("/reload_weights", dependencies=operator)
async def reload_weights(state: StateDep) -> Any:
    """The weights that the server was started with."""
    if state.settings.engine.random:
        raise ApiError(409, "this server was started with random weights, which are nowhere to be read", code="random")
    return await _from_folder(state, state.settings.engine.model, "model")


@router.post("/collective_rpc", dependencies=operator)
async def collective_rpc(state: StateDep, body: RpcRequest) -> Any:
    if body.method == "reload_weights":
        await reload_weights(state)
    else:
        given = [*body.args, *body.kwargs.values()]
        if len(given) != 1 or not isinstance(given[0], str):
            raise field_error("args", f"{body.method} takes the folder of the weights, and nothing else")
        await _from_folder(state, given[0], "args")
    return {"results": [None]}


@router.post("/init_weight_transfer_engine", dependencies=operator)
async def init_weight_transfer_engine(state: StateDep, body: TransferRequest) -> Any:
    """Join the trainer in a group of `torch.distributed` by the name of weight_transfer."""
    info = body.init_info
    place = (info.master_address.strip("[]"), info.master_port, info.rank_offset, info.world_size, info.backend)
    with blaming("init_info", ValueError, EngineRefused):
        await state.control.join_group(GroupAddress(GROUP, *place))
    state.control.packed = info.packed_buffer_size_bytes or PACKED_BYTES if info.packed else None
    return {"message": "Weight transfer initialized"}


@router.post("/start_weight_update", dependencies=operator)
async def start_weight_update(state: StateDep) -> Any:
    await state.control.open_update()
    return {"message": "Weight update started"}


@router.post("/finish_weight_update", dependencies=operator)
async def finish_weight_update(state: StateDep, body: FinishUpdate | None = None) -> Any:
    """Take all weights that came since the update was started, in one step."""
    await state.control.finish_update((body or FinishUpdate()).weight_version)
    return {"message": "Weight update finished", "weight_version": state.client.version}


@router.post("/weight_checker", dependencies=operator)
async def weight_checker(state: StateDep, body: WeightCheck) -> Any:
    found = await state.control.checksums()
    if body.baseline is None:
        return {"checksums": found}
    names = sorted(found.keys() | body.baseline.keys())
    mismatches = [name for name in names if found.get(name) != body.baseline.get(name)]
    return {"match": not mismatches, "mismatches": mismatches}


@router.post("/init_broadcaster", dependencies=operator)
async def init_broadcaster() -> Any:
    problem = "prime-rl's NCCL transport is not spoken here; set its weight_broadcast.type to filesystem"
    raise ApiError(400, problem, code="unsupported_parameter")


@router.post("/load_lora_adapter", dependencies=operator)
@router.post("/v1/load_lora_adapter", dependencies=operator)
async def load_lora_adapter(state: StateDep, body: NamedAdapter) -> Any:
    """Serve the adapter in a folder as the model of that name, from the next turn on."""
    if body.lora_path is None:
        raise field_error("lora_path", "it is needed, and the engine's process must be able to read it")
    with blaming("lora_path", ValueError, EngineRefused):
        state.settings.check_adapter(body.lora_name)
        await state.client.set_adapter(body.lora_name, body.lora_path)
    return {"status": "ok", "success": True, "loaded_adapters": state.client.adapters}


@router.post("/unload_lora_adapter", dependencies=operator)
@router.post("/v1/unload_lora_adapter", dependencies=operator)
async def unload_lora_adapter(state: StateDep, body: NamedAdapter) -> Any:
    if body.lora_name not in state.client.adapters:
        raise ApiError(404, f"there is no adapter {body.lora_name[:128]!r}", param="lora_name", code="model_not_found")
    await state.client.set_adapter(body.lora_name, None)
    return {"status": "ok", "success": True, "loaded_adapters": state.client.adapters}


async def _from_folder(state: ServerState, path: str, field: str) -> dict[str, Any]:
    try:
        told = await state.control.update_weights(path, None)
    except EngineRefused as error:
        raise ApiError(as_api_error(error).status, f"{field}: {error}", param=field, code="invalid_value") from error
    return {"status": "ok"} | told


async def _receive(state: ServerState, info: UpdateInfo) -> None:
    announced = zip(info.names, info.dtype_names, info.shapes, strict=True)
    most = PACKED_BYTES if info.packed and state.control.packed is None else state.control.packed
    with blaming("update_info", ValueError, EngineRefused):
        await state.control.receive(GROUP, announced, packed=most is not None, most=most)
