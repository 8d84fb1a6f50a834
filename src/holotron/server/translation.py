"""Requests of other dialects as chat requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from holotron.server.body_reader import own_place
from holotron.server.errors import as_api_error
from holotron.server.schemas import ChatRequest, Sampling


def chat_request(given: Sampling, options: Mapping[str, Any], fields: Mapping[str, str]) -> ChatRequest:
    """A chat request with the sampling of another, and these options; what is wrong with it in the client's words."""
    same = given.model_dump(include=set(Sampling.model_fields) - options.keys(), exclude_unset=True)
    values = same | dict(options)
    try:
        return ChatRequest.model_validate(values)
    except ValidationError as error:
        problems = [{**problem, "loc": own_place(problem, values)} for problem in error.errors()]
        raise as_api_error(RequestValidationError(problems)).renamed(fields) from error
