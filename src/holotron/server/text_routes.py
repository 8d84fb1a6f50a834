"""What models are here, and what a text is in tokens."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Depends

from holotron.model.errors import ModelError
from holotron.server.bodies import BodyRoute
from holotron.server.chat import plain, template_kwargs, texts_of, tools_of
from holotron.server.errors import blaming, field_error
from holotron.server.lengths import check_length
from holotron.server.response_models import ERRORS, Detokenized, ModelCard, ModelList, Tokenized
from holotron.server.schemas import DetokenizeRequest, TokenizeRequest
from holotron.server.state import ServerState, StateDep, caller_of

router = APIRouter(responses=ERRORS, dependencies=[Depends(caller_of)], route_class=BodyRoute)
MOST_COUNTED = 2**18  # tokens that /tokenize tells; a session may have more
_started = int(time.time())


def _card(state: ServerState) -> dict[str, Any]:
    return {
        "id": state.settings.model_name,
        "object": "model",
        "created": _started,
        "owned_by": "holotron",
        "max_model_len": state.max_context,
        "has_vision": state.texts.config.vision is not None,
        "policy_format": state.policy_format,
    }


@router.get("/v1/models", response_model=ModelList)
async def models(state: StateDep) -> Any:
    return {"object": "list", "data": [_card(state)]}


@router.get("/v1/models/{model_id:path}", response_model=ModelCard)
async def model(model_id: str, state: StateDep) -> Any:
    state.check_model(model_id)
    return _card(state)


@router.post("/tokenize", response_model=Tokenized)
async def tokenize(state: StateDep, body: TokenizeRequest) -> Any:
    """The token ids of a text, or of messages as the chat template writes them."""
    state.check_model(body.model)
    most = max(MOST_COUNTED, state.max_context)
    messages = body.messages or []
    sizes = [image.size for image in await state.images.read(messages)]
    more = template_kwargs(body)

    def encode() -> list[int]:
        tokenizer = state.texts.tokenizer
        if body.prompt is not None:
            check_length(tokenizer, [body.prompt], most, "prompt")
            return tokenizer.encode(body.prompt)
        check_length(tokenizer, texts_of(messages), most, "messages")
        with blaming("messages", ModelError):
            written = state.texts.prompts.write(
                list(map(plain, messages)), sizes, tools_of(body), body.add_generation_prompt, **more
            )
        return list(written.token_ids)

    ids = await state.off_loop(encode)
    return {"tokens": ids, "count": len(ids), "max_model_len": state.max_context}


@router.post("/detokenize", response_model=Detokenized)
async def detokenize(state: StateDep, body: DetokenizeRequest) -> Any:
    state.check_model(body.model)
    size = max(state.texts.config.vocab_size, state.texts.tokenizer.vocab_size)
    if wrong := [i for i, id_ in enumerate(body.tokens) if id_ >= size]:
        raise field_error(f"tokens.{wrong[0]}", f"there is no token {body.tokens[wrong[0]]}", "invalid_value")
    decode = state.texts.tokenizer.decode
    return {"prompt": await state.off_loop(lambda: decode(body.tokens, skip_special=body.skip_special_tokens))}
