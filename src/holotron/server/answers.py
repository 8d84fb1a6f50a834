"""Answers as the published schema describes them. They are built by hand where they are made: that is faster."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class ErrorBody(Answer):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(Answer):
    error: ErrorBody


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int]


class ChatChoice(Answer):
    index: int
    message: dict[str, Any]
    finish_reason: str
    logprobs: dict[str, Any] | None = None


class ChatCompletion(Answer):
    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    weight_version: str


class TextChoice(Answer):
    index: int
    text: str
    finish_reason: str
    logprobs: dict[str, Any] | None = None


class TextCompletion(Answer):
    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    weight_version: str


class ModelCard(Answer):
    id: str
    object: str = "model"
    created: int
    owned_by: str
    max_model_len: int


class ModelList(Answer):
    object: str = "list"
    data: list[ModelCard]


class Tokenized(Answer):
    tokens: list[int]
    count: int
    max_model_len: int


class Detokenized(Answer):
    prompt: str


class SessionAnswer(Answer):
    id: str
    object: str = "session"
    created: int
    ttl: float
    expires_in: float
    busy: bool


class SessionList(Answer):
    object: str = "list"
    data: list[SessionAnswer]


class Deleted(Answer):
    id: str
    deleted: bool


class Health(Answer):
    status: str


class Done(Answer):
    ok: bool = True
