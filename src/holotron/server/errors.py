"""Errors as OpenAI clients know them, each with the name of the field that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as AnyHTTPException

from holotron.server.engine_client import EngineDown, EngineRefused

# What the engine says, as a status, a code and the field it is about where that is always the same.
REFUSALS: dict[str, tuple[int, str, str | None]] = {
    "invalid": (400, "invalid_value", None),
    "too_long": (400, "context_length_exceeded", None),
    "image": (400, "invalid_image", None),
    "grammar": (400, "invalid_grammar", None),
    "unknown": (404, "session_not_found", "session_id"),
    "busy": (409, "session_busy", "session_id"),
    "full": (429, "no_room", None),
    "aborted": (409, "aborted", None),
    "failed": (500, "generation_failed", None),
    "internal": (500, "internal_error", None),
}
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
ANTHROPIC_TYPES = {404: "not_found_error", 503: "overloaded_error"}
LONGEST_MESSAGE = 1000
_OUR_TYPES = re.compile(r" or instance of \w+| or object to extract fields from")
LONGEST_PARAM = 200
NOT_FOUND = "Not Found"  # as Starlette says of a path that no route has


class ApiError(HTTPException):
    """An answer that is an error. FastAPI passes its own kind on from wherever it is raised, even a body being read."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry = retry

    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        param = None if self.param is None else _tellable(self.param, LONGEST_PARAM)
        message = _tellable(self.message, LONGEST_MESSAGE)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.code}}

    def anthropic_body(self) -> dict[str, Any]:
        """The same for Anthropic's clients, who know fewer types."""
        body = self.body()["error"]
        kind = "api_error" if body["type"] == "server_error" else body["type"]
        return {"type": "error", "error": body | {"type": ANTHROPIC_TYPES.get(self.status, kind)}}

    def renamed(self, fields: Mapping[str, str]) -> ApiError:
        """The same error in the words of a client that calls fields otherwise: by the longest name that is known."""
        known = [name for name in fields if self.param == name or (self.param or "").startswith(f"{name}.")]
        if self.param is None or not known:
            return self
        longest = max(known, key=len)
        own = fields[longest] + self.param[len(longest) :]
        message = own + self.message.removeprefix(self.param) if self.message.startswith(self.param) else self.message
        return ApiError(self.status, message, param=own, code=self.code, retry=self.retry)

    def response(self) -> JSONResponse:
        headers = {"Retry-After": str(self.retry)} if self.retry is not None else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(), self.status, headers)


STOPPING = ApiError(503, "the server is stopping; ask again when it is back", code="shutting_down", retry=5)


def _tellable(text: str, most: int) -> str:
    """Text that may be the client's own: of any length, and with halves of characters that no answer can carry."""
    return text[:most].encode("utf-8", "replace").decode() + ("…" if len(text) > most else "")


def field_error(field: str, message: object, code: str | None = None) -> ApiError:
    """What is wrong with one field of a request."""
    return ApiError(400, f"{field}: {message}", param=field, code=code)


@contextmanager
def blaming(field: str, *kinds: type[Exception], code: str = "invalid_value") -> Iterator[None]:
    """Let these errors be about a field of the request."""
    try:
        yield
    except kinds as error:
        raise field_error(field, error, code) from error


@contextmanager
def renaming(fields: Mapping[str, str]) -> Iterator[None]:
    """Let errors call fields as the client does."""
    try:
        yield
    except ApiError as error:
        raise error.renamed(fields) from error


def as_api_error(error: Exception) -> ApiError:
    """What to tell a client about something that went wrong."""
    match error:
        case ApiError():
            return error
        case EngineDown():
            return ApiError(503, str(error), code="engine_unavailable", retry=2)
        case EngineRefused():
            status, code, param = REFUSALS.get(error.kind, REFUSALS["internal"])
            return ApiError(status, str(error), param=param, code=code, retry=1 if status == 429 else None)
        case TimeoutError():
            return ApiError(504, "the turn took longer than the server allows; ask for fewer tokens", code="timeout")
        case RequestValidationError():
            return _explain(error)
        case AnyHTTPException():
            # Of FastAPI's own errors only those about a body it cannot read are 400.
            return ApiError(error.status_code, str(error.detail), param="body" if error.status_code == 400 else None)
    return ApiError(500, "something went wrong in the server; its log has the details", code="internal_error")


def add_handlers(app: FastAPI, paths: set[str]) -> None:
    """Let every error come out in the same form. paths: of the application's routes."""

    async def answer(request: Request, error: Exception) -> JSONResponse:
        found = as_api_error(error)
        if found.message == NOT_FOUND:
            found = _nothing_at(request.url.path, paths)
        elif found.status == 405:
            allowed = (getattr(error, "headers", None) or {}).get("Allow", "another method")
            path = request.url.path[:LONGEST_PARAM]
            found = ApiError(405, f"{request.method} is not for {path}; it takes {allowed}", code="method_not_allowed")
        request.state.code = found.code
        response = found.response()
        if request.url.path.startswith("/v1/messages"):
            response.body = response.render(found.anthropic_body())
            response.headers["content-length"] = str(len(response.body))
        response.headers.update(getattr(error, "headers", None) or {})
        return response

    for kind in (AnyHTTPException, EngineDown, EngineRefused, RequestValidationError, TimeoutError):
        app.add_exception_handler(kind, answer)


def _nothing_at(path: str, paths: set[str]) -> ApiError:
    """What to tell a client whose base URL has a /v1 too few or too many."""
    near = (f"/v1{path}", path.removeprefix("/v1"))
    meant = next((f"; did you mean {other}?" for other in near if other in paths), "; GET / tells what there is")
    return ApiError(404, f"there is nothing at {path[:LONGEST_PARAM]}{meant}", code="not_found")


def _explain(error: RequestValidationError) -> ApiError:
    """The first thing that is wrong with a request, by the name of its field."""
    problems: list[dict[str, Any]] = list(error.errors())
    # Of the alternatives of a union, the one that was read furthest is the one that was meant.
    nothing: dict[str, Any] = {"loc": (), "msg": "not valid"}
    first = max(problems, key=lambda one: (len(one["loc"]), not one["type"].endswith("_type")), default=nothing)
    steps = first["loc"][1:] if first["loc"][:1] == ("query",) else first["loc"]
    field = ".".join(str(part) for part in steps if part != "body")
    if first.get("type") == "json_invalid":
        reason = first.get("ctx", {}).get("error", first["msg"])
        return ApiError(400, f"the body is not valid JSON: {reason}", param="body", code="invalid_json")
    message = _OUR_TYPES.sub("", str(first["msg"]).removeprefix("Value error, "))
    return field_error(field or "body", message.removeprefix(f"{field} "), "invalid_value")
