"""Errors as OpenAI clients know them, each with the name of the field that is wrong."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from holotron.server.engine_client import EngineDown, EngineRefused

# What the engine says, as a status and a code.
REFUSALS = {
    "invalid": (400, "invalid_value"),
    "too_long": (400, "context_length_exceeded"),
    "image": (400, "invalid_image"),
    "grammar": (400, "invalid_grammar"),
    "unknown": (404, "session_not_found"),
    "busy": (409, "session_busy"),
    "failed": (500, "generation_failed"),
    "internal": (500, "internal_error"),
}
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
LONGEST_MESSAGE = 1000


class ApiError(Exception):
    """An answer that is an error."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry = retry

    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        message = self.message if len(self.message) <= LONGEST_MESSAGE else self.message[:LONGEST_MESSAGE] + "…"
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers = {"Retry-After": str(self.retry)} if self.retry is not None else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(), self.status, headers)


def as_api_error(error: Exception) -> ApiError:
    """What to tell a client about something that went wrong."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineDown):
        return ApiError(503, str(error), code="engine_unavailable", retry=2)
    if isinstance(error, EngineRefused):
        status, code = REFUSALS.get(error.kind, (500, "internal_error"))
        return ApiError(status, str(error), code=code)
    if isinstance(error, TimeoutError):
        return ApiError(504, "the turn took longer than the server allows; ask for fewer tokens", code="timeout")
    return ApiError(500, "something went wrong in the server; its log has the details", code="internal_error")


def add_handlers(app: FastAPI) -> None:
    """Let every error come out in the same form."""

    async def api(_: Request, error: Exception) -> JSONResponse:
        return as_api_error(error).response()

    async def validation(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return explain(error).response()

    async def http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        found = ApiError(error.status_code, str(error.detail))
        response = found.response()
        response.headers.update(error.headers or {})
        return response

    for kind in (ApiError, EngineDown, EngineRefused, TimeoutError):
        app.add_exception_handler(kind, api)
    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(HTTPException, http)


def explain(error: RequestValidationError) -> ApiError:
    """The first thing that is wrong with a request, by the name of its field."""
    problems: list[dict[str, Any]] = list(error.errors())
    # Of the alternatives of a union, the one that was read furthest is the one that was meant.
    nothing: dict[str, Any] = {"loc": (), "msg": "not valid"}
    first = max(problems, key=lambda problem: len(problem["loc"]), default=nothing)
    field = ".".join(str(part) for part in first["loc"] if part != "body")
    if first.get("type") == "json_invalid":
        reason = first.get("ctx", {}).get("error", first["msg"])
        return ApiError(400, f"the body is not valid JSON: {reason}", param="body", code="invalid_json")
    message = str(first["msg"]).removeprefix("Value error, ")
    return ApiError(400, f"{field or 'body'}: {message}", param=field or "body", code="invalid_value")
