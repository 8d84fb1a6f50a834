"""POST /v1/chat/completions and POST /v1/completions. With `stream` they send server-sent events."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holotron.server.answer import respond
from holotron.server.auth import ADMIN
from holotron.server.bodies import BodyRoute
from holotron.server.chat import begin_chat
from holotron.server.completions import begin_completion
from holotron.server.response_models import ERRORS, Aborted, ChatCompletion, TextCompletion
from holotron.server.schemas import AbortRequest, ChatRequest, CompletionRequest
from holotron.server.state import CallerDep, StateDep

router = APIRouter(responses=ERRORS, route_class=BodyRoute)


@router.post("/v1/chat/completions", responses={200: {"model": ChatCompletion}}, response_model=None)
async def chat_completions(http: Request, state: StateDep, caller: CallerDep, body: ChatRequest) -> Response:
    """Chat, in a session or without one. `stream` sends server-sent events."""
    return await respond(http, begin_chat(state, body, caller))


@router.post("/v1/completions", responses={200: {"model": TextCompletion}}, response_model=None)
async def completions(http: Request, state: StateDep, caller: CallerDep, body: CompletionRequest) -> Response:
    """Go on from a text, or from token ids. In a session they are appended to it as they are."""
    return await respond(http, begin_completion(state, body, caller))


@router.post("/abort_request", response_model=Aborted)
async def abort_request(state: StateDep, caller: CallerDep, body: AbortRequest) -> Any:
    """End answers under way, by the `X-Request-Id` of their request or by their own id; they end as aborted.

    The operator's go for the answers of all callers.
    """
    return {"aborted": state.running.abort(None if caller is ADMIN else caller.name, body.rid)}
