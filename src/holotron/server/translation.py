"""Requests of other dialects as chat requests and completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from holotron.server.body_reader import own_place
from holotron.server.errors import as_api_error
from holotron.server.schemas import ChatRequest, Sampling
from holotron.server.unknown_fields import ignore_unknown

R = TypeVar("R", bound=Sampling)


def chat_request(given: Sampling, options: Mapping[str, Any], fields: Mapping[str, str]) -> ChatRequest:
    """A chat request with the sampling of another, and these options; what is wrong with it in the client's words."""
    same = given.model_dump(include=set(Sampling.model_fields) - options.keys(), exclude_unset=True)
    return translated(ChatRequest, same | dict(options), fields, strict=False)


def translated(kind: type[R], values: dict[str, Any], fields: Mapping[str, str], strict: bool) -> R:
    """A request of that kind; what is wrong with it in the words of a client that calls fields otherwise.

    What it has too much is ignored as in any request, or an error of a strict server.
    """
    try:
        request = kind.model_validate(values)
    except ValidationError as error:
        problems = [{**problem, "loc": own_place(problem, values)} for problem in error.errors()]
        raise as_api_error(RequestValidationError(problems)).renamed(fields) from error
    ignore_unknown(request, strict)
    return request
