"""What models are here, and what a text is in tokens."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Depends, Request

from holotron.model.errors import ModelError
from holotron.server.answers import ERRORS, Detokenized, ModelCard, ModelList, Tokenized
from holotron.server.auth import Caller
from holotron.server.chat import plain, template_kwargs
from holotron.server.errors import ApiError
from holotron.server.schemas import DetokenizeRequest, TokenizeRequest
from holotron.server.state import State, caller_of, state_of

router = APIRouter()
_started = int(time.time())


def _card(state: State) -> dict[str, Any]:
    return {
        "id": state.settings.model_name,
        "object": "model",
        "created": _started,
        "owned_by": "holotron",
        "max_model_len": state.max_context,
        "has_vision": state.texts.config.vision is not None,
    }


@router.get("/v1/models", response_model=ModelList, responses=ERRORS)
async def models(http: Request, caller: Caller = Depends(caller_of)) -> Any:
    return {"object": "list", "data": [_card(state_of(http))]}


@router.get("/v1/models/{model_id:path}", response_model=ModelCard, responses=ERRORS)
async def model(model_id: str, http: Request, caller: Caller = Depends(caller_of)) -> Any:
    state = state_of(http)
    state.check_model(model_id)
    return _card(state)


@router.post("/tokenize", response_model=Tokenized, responses=ERRORS)
async def tokenize(body: TokenizeRequest, http: Request, caller: Caller = Depends(caller_of)) -> Any:
    """The token ids of a text, or of messages as the chat template writes them."""
    state = state_of(http)
    state.check_model(body.model)
    if body.prompt is not None:
        ids = await asyncio.to_thread(state.texts.tokenizer.encode, body.prompt)
    else:
        images = await state.images.read(body.messages or [])
        tools = [tool.model_dump(exclude_none=True) for tool in body.tools] if body.tools else None
        try:
            written = state.texts.prompts.write(
                plain(body.messages or []),
                [image.size for image in images],
                tools,
                body.add_generation_prompt,
                **template_kwargs(body),
            )
        except ModelError as error:
            raise ApiError(400, f"messages: {error}", param="messages", code="invalid_value") from error
        ids = list(written.token_ids)
    return {"tokens": ids, "count": len(ids), "max_model_len": state.max_context}


@router.post("/detokenize", response_model=Detokenized, responses=ERRORS)
async def detokenize(body: DetokenizeRequest, http: Request, caller: Caller = Depends(caller_of)) -> Any:
    state = state_of(http)
    state.check_model(body.model)
    size = max(state.texts.config.vocab_size, state.texts.tokenizer.vocab_size)
    if wrong := [i for i, id_ in enumerate(body.tokens) if id_ >= size]:
        field = f"tokens.{wrong[0]}"
        raise ApiError(400, f"{field}: there is no token {body.tokens[wrong[0]]}", param=field, code="invalid_value")
    return {"prompt": state.texts.tokenizer.decode(body.tokens, skip_special=body.skip_special_tokens)}
