"""Answers as the published schema describes them. They are built by hand where they are made: that is faster."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class ApiModel(BaseModel):
    model_config = ConfigDict(extra="allow")


class ErrorBody(ApiModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(ApiModel):
    error: ErrorBody


# What every route may answer instead.
ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorAnswer} for code in (400, 401, 403, 404, 408, 409, 413, 421, 429, 500, 503, 504)
}


class Usage(ApiModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class AnyChoice(ApiModel):
    index: int
    finish_reason: str
    logprobs: dict[str, Any] | None = None


class ChatChoice(AnyChoice):
    message: dict[str, Any]


class TextChoice(AnyChoice):
    text: str


class AnyCompletion(ApiModel):
    id: str
    object: str
    created: int
    model: str
    usage: Usage
    weight_version: str


class ChatCompletion(AnyCompletion):
    choices: list[ChatChoice]


class TextCompletion(AnyCompletion):
    choices: list[TextChoice]


class ResponseAnswer(ApiModel):
    id: str
    object: str
    status: str
    output: list[dict[str, Any]]
    usage: dict[str, Any]


class InputItemList(ApiModel):
    object: str = "list"
    data: list[dict[str, Any]]
    has_more: bool
    first_id: str | None = None
    last_id: str | None = None


class MessageAnswer(ApiModel):
    id: str
    type: str
    role: str
    content: list[dict[str, Any]]
    stop_reason: str | None
    usage: dict[str, Any]


class TokenCount(ApiModel):
    input_tokens: int


class InputTokens(TokenCount):
    object: str = "response.input_tokens"


class ModelCard(ApiModel):
    id: str
    object: str = "model"
    created: int
    owned_by: str
    parent: str | None = None
    max_model_len: int
    policy_format: dict[str, Any] | None = None


class ModelList(ApiModel):
    object: str = "list"
    data: list[ModelCard]


class Tokenized(ApiModel):
    tokens: list[int]
    count: int
    max_model_len: int


class TokenizerInfo(ApiModel):
    tokenizer_class: str
    vocab_size: int
    chat_template: str


class Detokenized(ApiModel):
    prompt: str


class SessionAnswer(ApiModel):
    id: str
    object: str = "session"
    adapter: str | None = None
    created: int
    ttl: float
    expires_in: float
    busy: bool
    policy_format: dict[str, Any] | None = None


class SessionList(ApiModel):
    object: str = "list"
    data: list[SessionAnswer]


class Deleted(ApiModel):
    id: str
    deleted: bool


class DeletedResponse(Deleted):
    object: str = "response"


class Health(ApiModel):
    status: str


class Load(ApiModel):
    server_load: int


class Aborted(ApiModel):
    aborted: int


class Done(ApiModel):
    ok: bool = True
