"""Around every request: a key before its body, a limit on its size, a line in the log, a count."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holotron.server.affinity import affinity, note_affinity
from holotron.server.auth import Hosts, Keys
from holotron.server.errors import STOPPING, ApiError, as_api_error
from holotron.server.metrics import Metrics

log = logging.getLogger("holotron.server")
BODY_SECONDS = 60.0  # that the next piece of a body may take
NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)  # that a client may give its request
UNLIMITED = ("/admin/weights",)  # weights are as large as they are, and only the operator sends them


class RequestMiddleware:
    """Plain ASGI rather than Starlette's base class, which gets in the way of streams and disconnects."""

    def __init__(self, app: ASGIApp, metrics: Metrics, keys: Keys, hosts: Hosts, max_body_bytes: int) -> None:
        self._app = app
        self._hosts = hosts
        self._keys = keys
        self._metrics = metrics
        self._most = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        named = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = named if NAME.fullmatch(named) else uuid4().hex
        status = 0
        received = 0
        complete = False
        if scope["method"] == "HEAD":  # which load balancers ask with; uvicorn leaves the body of the answer out
            scope = {**scope, "method": "GET"}
        most = self._most if scope["path"] not in UNLIMITED else sys.maxsize
        too_large = ApiError(413, f"body: more than the {most:,} bytes that are taken", param="body", code="too_large")

        async def limited() -> Message:
            nonlocal received, complete
            if not received:
                self._keys.caller(Request(scope))  # without a key nothing is taken in, let alone parsed
            try:
                async with asyncio.timeout(None if complete else BODY_SECONDS):
                    message = await receive()
            except TimeoutError:
                problem = f"body: nothing more of it came for {BODY_SECONDS:.0f} seconds"
                raise ApiError(408, problem, param="body", code="timeout") from None
            complete = not message.get("more_body", False)
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > most:
                    raise too_large
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = [(b"x-request-id", request_id.encode())]
                if ignored := scope["state"].get("ignored"):
                    added.append((b"warning", f'299 holotron "ignored unknown fields: {ignored}"'.encode()))
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        noticed: dict[str, Any] = scope.setdefault("state", {})
        noticed["request_id"] = request_id
        note_affinity(scope)
        try:
            self._hosts.check(Request(scope))
            coding = dict(scope["headers"]).get(b"content-encoding", b"identity").decode("latin-1").lower()
            if coding not in ("identity", ""):
                problem = f"body: it is compressed ({coding[:40]}); send it as it is, without Content-Encoding"
                raise ApiError(415, problem, param="body", code="unsupported_encoding")
            declared = dict(scope["headers"]).get(b"content-length", b"0")
            if declared.isdigit() and int(declared) > most:
                raise too_large
            await self._app(scope, limited, noted)
        except asyncio.CancelledError:  # the server stops, and has waited long enough
            noticed["code"] = STOPPING.code
            if status:
                raise
            await STOPPING.response()(scope, receive, noted)
        except ApiError as error:
            noticed["code"] = error.code
            if not status:
                await error.response()(scope, receive, noted)
        except Exception as error:
            log.exception("request %s failed", request_id)
            noticed["code"] = as_api_error(error).code
            if not status:
                await as_api_error(error).response()(scope, receive, noted)
        finally:
            self._note(scope, request_id, status, time.monotonic() - began)

    def _note(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "unknown"
        self._metrics.answered(route, status)
        fields: dict[str, Any] = {
            "id": request_id,
            "method": scope["method"],
            "route": route,
            "status": status,
            "seconds": round(seconds, 4),
            "caller": scope["state"].get("caller"),
        }
        code = scope["state"].get("code")
        session = scope.get("path_params", {}).get("session_id") or affinity.get()
        if session and code != "session_not_found":  # what is no session's name may be anything
            fields["session"] = session[:128]
        if code:
            fields["code"] = code
        turn = scope["state"].get("turn")
        if turn is not None:
            fields |= {
                "prompt_tokens": turn.prompt_tokens,
                "cached_tokens": turn.cached_tokens,
                "completion_tokens": turn.completion_tokens,
                "finish": turn.choices[0].finish,
            }
        log.info("request", extra={"fields": fields})
