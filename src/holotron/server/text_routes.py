"""What models are here, and what a text is in tokens."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Depends

from holotron.server.bodies import BodyRoute
from holotron.server.chat import write_prompt
from holotron.server.errors import field_error
from holotron.server.lengths import MOST_COUNTED, check_length
from holotron.server.response_models import ERRORS, Detokenized, ModelCard, ModelList, Tokenized, TokenizerInfo
from holotron.server.schemas import DetokenizeRequest, TokenizeRequest
from holotron.server.state import ServerState, StateDep, caller_of

router = APIRouter(responses=ERRORS, dependencies=[Depends(caller_of)], route_class=BodyRoute)
_started = int(time.time())


def _card(state: ServerState, adapter: str | None = None) -> dict[str, Any]:
    return {
        "id": adapter or state.settings.model_name,
        "root": state.client.adapters[adapter] if adapter else state.settings.engine.model,
        "parent": state.settings.model_name if adapter else None,
        "object": "model",
        "created": _started,
        "owned_by": "holotron",
        "max_model_len": state.max_context,
        "has_vision": state.texts.config.vision is not None,
        "policy_format": state.policy_format,
    }


@router.get("/v1/models", response_model=ModelList)
async def models(state: StateDep) -> Any:
    """The model, and its adapters, whose parent it is."""
    return {"object": "list", "data": [_card(state), *(_card(state, name) for name in state.client.adapters)]}


@router.get("/v1/models/{model_id:path}", response_model=ModelCard)
async def model(model_id: str, state: StateDep) -> Any:
    return _card(state, state.check_model(model_id))


@router.get("/tokenizer_info", response_model=TokenizerInfo)
async def tokenizer_info(state: StateDep) -> Any:
    """What a client needs to write prompts itself."""
    texts = state.texts
    return {
        "tokenizer_class": type(texts.tokenizer).__name__,
        "vocab_size": texts.tokenizer.vocab_size,
        "model_max_length": state.max_context,
        "chat_template": texts.template.source,
        "markup": texts.tokenizer.markup,
        "eos_token_ids": list(texts.config.eos_token_ids),
        "image_token_id": texts.config.vision.image_token_id if texts.config.vision else None,
        **texts.template.special_tokens,
    }


@router.post("/tokenize", response_model=Tokenized)
async def tokenize(state: StateDep, body: TokenizeRequest) -> Any:
    """The token ids of a text, or of messages as the chat template writes them."""
    state.check_model(body.model)
    if body.prompt is None:
        ids = list((await write_prompt(state, body, body.add_generation_prompt)).token_ids)
    else:
        text, tokenizer = body.prompt, state.texts.tokenizer

        def encode() -> list[int]:
            check_length(tokenizer, [text], max(MOST_COUNTED, state.max_context), "prompt")
            return tokenizer.encode(text)

        ids = await state.off_loop(encode)
    return {"tokens": ids, "count": len(ids), "max_model_len": state.max_context}


@router.post("/detokenize", response_model=Detokenized)
async def detokenize(state: StateDep, body: DetokenizeRequest) -> Any:
    state.check_model(body.model)
    tokenizer = state.texts.tokenizer
    size = max(state.texts.config.vocab_size, tokenizer.vocab_size)

    def decode() -> str:
        if wrong := [i for i, id_ in enumerate(body.tokens) if id_ >= size]:
            raise field_error(f"tokens.{wrong[0]}", f"there is no token {body.tokens[wrong[0]]}", "invalid_value")
        return tokenizer.decode(body.tokens, skip_special=body.skip_special_tokens)

    return {"prompt": await state.off_loop(decode)}
