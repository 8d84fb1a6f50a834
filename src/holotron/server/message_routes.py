"""POST /v1/messages: Anthropic's dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from holotron.server.answer import respond
from holotron.server.auth import Caller
from holotron.server.blocks import AnswerBlock, BlockAnswer
from holotron.server.bodies import BodyRoute
from holotron.server.chat import begin_chat, write_prompt
from holotron.server.errors import ApiError, field_error, renaming
from holotron.server.message_schemas import CountRequest, MessagesRequest
from holotron.server.response_models import ERRORS, MessageAnswer, TokenCount
from holotron.server.state import CallerDep, ServerState, StateDep
from holotron.server.streaming import named_sse

router = APIRouter(responses=ERRORS, route_class=BodyRoute)
STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "abort": "pause_turn"}


@router.post("/v1/messages", responses={200: {"model": MessageAnswer}}, response_model=None)
async def messages(http: Request, state: StateDep, caller: CallerDep, body: MessagesRequest) -> Response:
    """An answer in blocks: thoughts, text, uses of tools."""
    return await respond(http, _begin(state, body, caller))


@router.post("/v1/messages/count_tokens", response_model=TokenCount)
async def count_tokens(state: StateDep, caller: CallerDep, body: CountRequest) -> Any:
    """How many tokens a prompt has, with its images and tools."""
    state.check_model(body.model)
    chat, fields = body.as_chat()
    with renaming(fields):
        written = await write_prompt(state, chat)
    return {"input_tokens": len(written.token_ids)}


class MessagesAnswer(BlockAnswer):
    """Blocks of Anthropic's messages, and the events that they are streamed in."""

    prefix = "msg"

    def began(self) -> Iterator[dict[str, Any]]:
        yield {"type": "message_start", "message": self._message()}

    def opened(self, block: AnswerBlock) -> Iterator[dict[str, Any]]:
        yield {"type": "content_block_start", "index": block.index, "content_block": _told(block, empty=True)}

    def grown(self, block: AnswerBlock, more: str) -> Iterator[dict[str, Any]]:
        deltas = {
            "text": {"type": "text_delta", "text": more},
            "reasoning": {"type": "thinking_delta", "thinking": more},
            "call": {"type": "input_json_delta", "partial_json": more},
        }
        yield {"type": "content_block_delta", "index": block.index, "delta": deltas[block.kind]}

    def closed(self, block: AnswerBlock) -> Iterator[dict[str, Any]]:
        yield {"type": "content_block_stop", "index": block.index}

    def ended(self) -> Iterator[dict[str, Any]]:
        yield {"type": "message_delta", "delta": self._stop(), "usage": self._tokens()}
        yield {"type": "message_stop"}

    def broken(self, error: ApiError) -> Iterator[bytes]:
        yield named_sse(error.anthropic_body())

    def told(self) -> dict[str, Any]:
        content = [_told(block) for block in self.blocks]
        return self._message() | self._stop() | {"content": content} | self.extras()

    def _message(self) -> dict[str, Any]:
        head = {"id": self.head["id"], "type": "message", "role": "assistant", "model": self.head["model"]}
        return head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": self._tokens()}

    def _stop(self) -> dict[str, Any]:
        if isinstance(self.choice.stop, str):
            return {"stop_reason": "stop_sequence", "stop_sequence": self.choice.stop}
        return {"stop_reason": STOP_REASONS.get(self.finish_reason(self.choice), "end_turn"), "stop_sequence": None}

    def _tokens(self) -> dict[str, Any]:
        usage = self.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage["completion_tokens"],
        }


def _told(block: AnswerBlock, empty: bool = False) -> dict[str, Any]:
    match block.kind:
        case "text":
            return {"type": "text", "text": "" if empty else block.text, "citations": None}
        case "reasoning":
            return {"type": "thinking", "thinking": "" if empty else block.text, "signature": ""}
        case "call" | "custom":
            arguments = {} if empty else json.loads(block.text)
            return {"type": "tool_use", "id": f"toolu_{block.id}", "name": block.name, "input": arguments}


async def _begin(state: ServerState, body: MessagesRequest, caller: Caller) -> MessagesAnswer:
    if body.n != 1:
        raise field_error("n", "a message has one answer")
    chat, fields = body.as_chat()
    with renaming(fields):
        answer = await begin_chat(state, chat, caller, MessagesAnswer)
    assert isinstance(answer, MessagesAnswer)
    answer.fields = fields
    return answer
