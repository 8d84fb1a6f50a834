"""The routes of `trl vllm-serve`, which GRPOTrainer calls in server mode; their paths end with a slash."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from holotron.engine.weight_spec import GroupAddress
from holotron.server.answer import TurnAnswer
from holotron.server.auth import Caller
from holotron.server.bodies import BodyRoute
from holotron.server.chat import begin_chat
from holotron.server.completions import CompletionAnswer, begin_completion
from holotron.server.errors import blaming, field_error
from holotron.server.fields import Body, ImageText, ShortText, Text, TokenId
from holotron.server.health_routes import health
from holotron.server.logprobs import CERTAIN, LOWEST
from holotron.server.schemas import ChatRequest, CompletionRequest
from holotron.server.sglang_generate import write_marked
from holotron.server.sglang_routes import operator
from holotron.server.sglang_schemas import Shape
from holotron.server.state import CallerDep, ServerState, StateDep
from holotron.server.streaming import unless_gone
from holotron.server.translation import translated
from holotron.server.turns import Choice

router = APIRouter(route_class=BodyRoute)
GROUP = "client2server"
MOST = 1024  # prompts of a request
Answer = TurnAnswer[CompletionRequest] | TurnAnswer[ChatRequest]


class TrlSampling(Body):
    """How tokens are drawn; more parameters of a completion may be in `generation_kwargs`."""

    n: int = 1
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    max_tokens: int = 16
    logprobs: int | None = 0
    structured_outputs_regex: Text | None = None
    truncate_prompt_tokens: None = None
    generation_kwargs: dict[ShortText, Any] = Field(default_factory=dict)

    def as_fields(self) -> dict[str, Any]:
        names = {"n", "repetition_penalty", "temperature", "top_p", "top_k", "min_p", "max_tokens", "logprobs"}
        fields = self.model_dump(include=names) | {"return_token_ids": True} | self.generation_kwargs
        if self.structured_outputs_regex is not None:
            fields["structured_outputs"] = {"regex": self.structured_outputs_regex}
        return fields


class TrlPrompts(TrlSampling):
    """POST /generate/: prompts in texts or token ids, and base64 images for each."""

    prompts: (
        Annotated[list[Text], Field(min_length=1, max_length=MOST)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=MOST)]
    )
    images: Annotated[list[Annotated[list[ImageText], Field(max_length=64)] | ImageText | None], Field()] | None = None


class TrlChats(TrlSampling):
    """POST /chat/: conversations. Images in them are base64, as parts of type image_pil."""

    messages: Annotated[list[list[dict[ShortText, Any]]], Field(min_length=1, max_length=MOST)]
    tools: list[dict[ShortText, Any]] | None = None
    chat_template_kwargs: dict[ShortText, Any] | None = None
    chat_template: None = None


class Communicator(Body):
    host: ShortText
    port: Annotated[int, Field(ge=1, le=65535)]
    world_size: Annotated[int, Field(ge=2, le=2**16)]
    client_device_uuid: ShortText = ""
    backend: ShortText | None = None


class NamedParameter(Body):
    name: ShortText
    dtype: ShortText
    shape: Shape


# ---- generation ----


@router.post("/generate/")
async def generate(http: Request, state: StateDep, caller: CallerDep, body: TrlPrompts) -> Any:
    images = body.images or [None] * len(body.prompts)
    if len(images) != len(body.prompts):
        raise field_error("images", f"there are {len(images)} lists of them for {len(body.prompts)} prompts")

    def begin(prompt: str | list[int], sent: list[str] | str | None) -> Coroutine[Any, Any, CompletionAnswer]:
        urls = [f"data:image/png;base64,{each}" for each in ([sent] if isinstance(sent, str) else sent or ())]
        fields = body.as_fields() | {"prompt": prompt, "images": urls or None}
        request = translated(CompletionRequest, fields, {"prompt": "prompts"}, state.settings.strict)
        return begin_completion(state, request, caller, write=write_marked)

    prompts: Sequence[Any] = body.prompts
    beginnings = [begin(prompt, sent) for prompt, sent in zip(prompts, images, strict=True)]
    return await unless_gone(http.receive, _finished(state, caller, beginnings))


@router.post("/chat/")
async def chat(http: Request, state: StateDep, caller: CallerDep, body: TrlChats) -> Any:
    fields = body.as_fields()
    count = fields.pop("logprobs")
    fields |= {"logprobs": count is not None, "top_logprobs": count, "tools": body.tools or None}
    fields |= {"tool_choice": "none" if body.tools else None, "chat_template_kwargs": body.chat_template_kwargs or {}}

    def begin(messages: list[dict[str, Any]]) -> Coroutine[Any, Any, Any]:
        told = fields | {"messages": list(map(_message, messages))}
        return begin_chat(state, translated(ChatRequest, told, {}, state.settings.strict), caller)

    beginnings = [begin(messages) for messages in body.messages]
    return await unless_gone(http.receive, _finished(state, caller, beginnings))


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose images are data URLs."""
    if not isinstance(parts := message.get("content"), list):
        return message
    urls = [part.get("image_pil") if isinstance(part, dict) else None for part in parts]
    told = [
        part if url is None else {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{url}"}}
        for part, url in zip(parts, urls, strict=True)
    ]
    return message | {"content": told}


async def _finished(
    state: ServerState, caller: Caller, beginnings: Sequence[Coroutine[Any, Any, Answer]]
) -> dict[str, Any]:
    """All answers, once every one is finished; a refusal ends those that were begun."""
    answers: list[Answer] = []
    waiting = list(beginnings)
    try:
        while waiting:
            answer = await waiting.pop(0)
            answers.append(answer)
            state.running.add(caller.name, (answer.head["id"],), answer)
        await asyncio.gather(*(answer.whole() for answer in answers))
    finally:
        for answer in answers:
            answer.close()
        for beginning in waiting:
            beginning.close()
    told = [_logprobs(choice, answer.request.temperature == 0) for answer in answers for choice in answer.choices]
    has_logprobs = answers[0].request.logprob_count is not None
    return {
        "prompt_ids": [list(answer.turns[0].prompt_ids) for answer in answers],
        "completion_ids": [choice.token_ids for answer in answers for choice in answer.choices],
        "logprobs": [values for values, _ in told] if has_logprobs else None,
        "logprob_token_ids": [ids for _, ids in told] if has_logprobs else None,
    }


def _logprobs(choice: Choice, is_greedy: bool) -> tuple[list[list[float]], list[list[int]]]:
    """For each token, itself and its alternatives by falling log-probability. Its own is that of the draw."""
    values, ids = [], []
    for id_, known in zip(choice.token_ids, choice.logprobs, strict=True):
        known = known or CERTAIN
        best = dict(known.top) | {id_: known.model if is_greedy else known.sampling}
        ranked = sorted(best.items(), key=lambda item: -item[1])
        values.append([max(LOWEST, value) for _, value in ranked])
        ids.append([id_ for id_, _ in ranked])
    return values, ids


# ---- weights: a trainer begins to send once it was answered, so that errors are told when it has sent all ----


@router.get("/health/")
async def health_with_slash(state: StateDep) -> Any:
    return await health(state)


@router.post("/init_communicator/", dependencies=operator)
async def init_communicator(state: StateDep, body: Communicator) -> Any:
    """Meet the trainer, the last rank, at a port of this machine; over NCCL where the model is on a GPU."""
    with blaming("backend", ValueError):
        last = body.world_size - 1
        address = GroupAddress(GROUP, body.host, body.port, 0, body.world_size, body.backend or "", trainer=last)
    state.control.later(state.control.join_group(address))
    return {"message": "Request received, initializing communicator"}


@router.post("/update_named_param/", dependencies=operator)
async def update_named_param(state: StateDep, body: NamedParameter) -> Any:
    """Receive one parameter; /reset_prefix_cache/ lets the engine have all that came."""
    announced = [(body.name, body.dtype, body.shape)]
    state.control.later(state.control.receive(GROUP, announced, keep=True))
    return {"message": "Request received, updating named parameter"}


@router.post("/reset_prefix_cache/", dependencies=operator)
async def reset_prefix_cache(state: StateDep) -> Any:
    with blaming("name", ValueError):
        await state.control.settle()
    await state.control.take()
    await state.control.flush()
    return {"message": "Request received, resetting prefix cache status: True", "weight_version": state.client.version}


@router.post("/close_communicator/", dependencies=operator)
async def close_communicator(state: StateDep) -> Any:
    await state.control.settle()
    await state.control.leave_group(GROUP)
    return {"message": "Request received, closing communicator"}
