"""POST /v1/chat/completions."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from holotron.server.answers import ERRORS, ChatCompletion
from holotron.server.auth import Caller
from holotron.server.chat import answer_chat
from holotron.server.schemas import ChatRequest
from holotron.server.state import caller_of

router = APIRouter()


@router.post("/v1/chat/completions", responses={200: {"model": ChatCompletion}, **ERRORS}, response_model=None)
async def chat_completions(body: ChatRequest, http: Request, caller: Caller = Depends(caller_of)) -> Response:
    """Chat, in a session or without one. `stream` sends server-sent events."""
    return await answer_chat(http, body, caller)
