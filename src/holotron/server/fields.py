"""What requests are made of: bounded texts and numbers, null for the default, and unknown fields kept to be told."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from holotron.engine.limits import MAX_STOP_LENGTH

MAX_TOKENS = 1_000_000
# JSON that is the client's own: null in it is null.
VERBATIM = {"parameters", "schema", "json", "input_schema", "input", "chat_template_kwargs", "metadata"}
VERBATIM |= {"prompt", "tokens"}
DEEPEST_NULL = 12  # body, messages, message, content, result, content, document, source, content, part: no deeper
Text = Annotated[str, Field(max_length=16_000_000)]
ImageText = Annotated[str, Field(max_length=128 * 2**20)]  # settings have the limit of an image, and of the body
ShortText = Annotated[str, Field(max_length=512)]
StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
TokenId = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Count = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Request(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Options(Request):
    """Part of a request that says what is wanted: an unknown field is kept, so that it can be told."""

    model_config = ConfigDict(extra="allow")


class Body(Options):
    """A whole request."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, value: Any) -> Any:
        return _without_nulls(value)


class OperatorBody(Body):
    """Unknown fields are errors: the operator's mistakes cost more than a client's."""

    model_config = ConfigDict(extra="forbid")


def _is_items(name: str, value: Any) -> bool:
    """The input of a response: that of a tool is no list."""
    return name == "input" and isinstance(value, list)


def _without_nulls(value: Any, depth: int = DEEPEST_NULL) -> Any:
    if depth and isinstance(value, dict):
        return {
            name: inner if name in VERBATIM and not _is_items(name, inner) else _without_nulls(inner, depth - 1)
            for name, inner in value.items()
            if inner is not None
        }
    if depth and isinstance(value, list):
        return [_without_nulls(inner, depth - 1) if isinstance(inner, dict) else inner for inner in value]
    return value
