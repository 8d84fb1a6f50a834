"""/v1/responses: OpenAI's newer dialect. A chain of responses is a session."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from holotron.server.answer import respond
from holotron.server.auth import Caller
from holotron.server.blocks import AnswerBlock, BlockAnswer
from holotron.server.bodies import BodyRoute
from holotron.server.chat import begin_chat, write_prompt
from holotron.server.errors import ApiError, field_error, renaming
from holotron.server.logprobs import TokenNames, chat_logprobs
from holotron.server.response_chain import find, held_before, read, session_for, stored
from holotron.server.response_models import ERRORS, DeletedResponse, InputItemList, InputTokens, ResponseAnswer
from holotron.server.response_schemas import ResponsesRequest
from holotron.server.session_routes import close
from holotron.server.state import CallerDep, ServerState, StateDep
from holotron.server.streaming import named_sse

router = APIRouter(responses=ERRORS, route_class=BodyRoute)


@router.post("/v1/responses", responses={200: {"model": ResponseAnswer}}, response_model=None)
async def responses(http: Request, state: StateDep, caller: CallerDep, body: ResponsesRequest) -> Response:
    """An answer in items. It can be gone on from by its id, unless `store` is false."""
    return await respond(http, _begin(state, body, caller))


@router.post("/v1/responses/input_tokens", response_model=InputTokens)
async def count_input_tokens(state: StateDep, caller: CallerDep, body: ResponsesRequest) -> Any:
    """How many tokens a response would read, with what it goes on from, images and tools."""
    body, before = await read(state, body, caller)
    state.check_model(body.model)
    held, session = await held_before(state, before)
    chat, fields = body.as_chat(None, before.earlier)
    with renaming(fields):
        written = await write_prompt(state, chat, session=session)
    return {"input_tokens": held + len(written.token_ids)}


@router.get("/v1/responses/{response_id}", responses={200: {"model": ResponseAnswer}}, response_model=None)
async def read_response(response_id: str, state: StateDep, caller: CallerDep, stream: bool = False) -> Response:
    """A stored response as it was told."""
    kept = stored(state, response_id, caller)
    if stream:
        raise field_error("stream", "only a response in the background is streamed again, and there are none here")
    return Response(kept.told, media_type="application/json")


@router.get("/v1/responses/{response_id}/input_items", response_model=InputItemList)
async def list_input_items(
    response_id: str,
    http: Request,
    state: StateDep,
    caller: CallerDep,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: Annotated[str | None, Query(max_length=512)] = None,
) -> Any:
    """The items that a response was made from, page by page; URLs of images if `include` asks for them."""
    kept = stored(state, response_id, caller)
    include = {*http.query_params.getlist("include"), *http.query_params.getlist("include[]")}
    items = state.responses.input_items(kept, "message.input_image.image_url" in include)
    items = items if order == "asc" else items[::-1]
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise field_error("after", f"there is no item {after[:128]!r} among those of this response")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {}
    return {"data": page, "has_more": len(items) > limit} | ends


@router.post("/v1/responses/{response_id}/cancel", response_model=ResponseAnswer)
async def cancel_response(response_id: str, state: StateDep, caller: CallerDep) -> Any:
    """Refused: a response is there when its turn has ended."""
    find(state, response_id, caller, "response_id")
    raise field_error("response_id", "only a response in the background can be cancelled; to end a stream, close it")


@router.delete("/v1/responses/{response_id}", response_model=DeletedResponse)
async def delete_response(response_id: str, state: StateDep, caller: CallerDep) -> Any:
    """Forget a response; with the last one of a chain, its session is closed."""
    session, turn = find(state, response_id, caller, "response_id")
    state.responses.remove(response_id)
    session.not_responses.add(turn)
    if len(session.not_responses) >= session.turns:
        await close(state, session)
    return {"id": response_id, "deleted": True}


class ResponsesAnswer(BlockAnswer):
    """Items of OpenAI's responses, and the events that they are streamed in."""

    asked: ResponsesRequest
    is_stored: bool
    tells_silence = True
    _events_told = 0

    def began(self) -> Iterator[dict[str, Any]]:
        for kind in ("response.created", "response.in_progress"):
            yield self._numbered({"type": kind, "response": self._response("in_progress", None)})

    def opened(self, block: AnswerBlock) -> Iterator[dict[str, Any]]:
        item = self._item(block, "in_progress")
        yield self._numbered({"type": "response.output_item.added", "output_index": block.index, "item": item})
        if not block.is_call:
            yield self._numbered(
                {"type": "response.content_part.added", "part": self._part(block, "")} | self._at(block)
            )

    def grown(self, block: AnswerBlock, more: str) -> Iterator[dict[str, Any]]:
        kinds = {"reasoning": "reasoning_text", "text": "output_text", "call": "function_call_arguments"}
        kinds["custom"] = "custom_tool_call_input"
        extra: dict[str, Any] = {"logprobs": []} if block.kind == "text" else {}
        yield self._numbered({"type": f"response.{kinds[block.kind]}.delta", "delta": more} | self._at(block) | extra)

    def closed(self, block: AnswerBlock) -> Iterator[dict[str, Any]]:
        done: dict[str, Any]
        match block.kind:
            case "call":
                done = {"type": "response.function_call_arguments.done", "arguments": block.text, "name": block.name}
            case "custom":
                done = {"type": "response.custom_tool_call_input.done", "input": block.text}
            case "text":
                done = {"type": "response.output_text.done", "text": block.text, "logprobs": []}
            case "reasoning":
                done = {"type": "response.reasoning_text.done", "text": block.text}
        yield self._numbered(done | self._at(block))
        if not block.is_call:
            part = self._part(block, block.text)
            yield self._numbered({"type": "response.content_part.done", "part": part} | self._at(block))
        item = self._item(block, "completed")
        yield self._numbered({"type": "response.output_item.done", "output_index": block.index, "item": item})

    def result(self) -> dict[str, Any]:
        return self._keep(super().result())

    def ended(self) -> Iterator[dict[str, Any]]:
        response = self._keep(self.told())
        yield self._numbered({"type": f"response.{response['status']}", "response": response})

    def broken(self, error: ApiError) -> Iterator[bytes]:
        found = {"code": error.code or "server_error", "message": error.message}
        failed = self._response("failed", None) | {"error": found}
        yield named_sse(self._numbered({"type": "error", "param": error.param} | found))
        yield named_sse(self._numbered({"type": "response.failed", "response": failed}))

    def told(self) -> dict[str, Any]:
        reason = {"length": "max_output_tokens", "abort": "cancelled"}.get(self.choice.finish or "")
        status = "completed" if reason is None else "incomplete"
        response = self._response(status, reason)
        response["output"] = [self._item(block, "completed") for block in self.blocks]
        response["usage"] = self._tokens()
        return response | self.extras() | self._token_ids()

    def _keep(self, response: dict[str, Any]) -> dict[str, Any]:
        if self.is_stored:
            self._state.responses.add(response, self.asked.items)
        return response

    def _token_ids(self) -> dict[str, Any]:
        return self.choice.tokens(self._state.client.version_of) if self.request.return_token_ids else {}

    def _response(self, status: str, reason: str | None) -> dict[str, Any]:
        asked = self.asked
        tools = [tool.model_dump() for tool in asked.tools or ()]
        choice = asked.tool_choice or "auto"
        return {
            "id": self.head["id"],
            "object": "response",
            "created_at": self.head["created"],
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": self.head["model"],
            "output": [],
            "parallel_tool_calls": self.request.parallel_tool_calls,
            "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": None, "summary": None},
            "store": self.is_stored,
            "temperature": self.request.temperature,
            "text": {"format": {"type": "text"}} if asked.text is None else asked.text.model_dump(by_alias=True),
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": tools,
            "top_p": self.request.top_p,
            "truncation": "disabled",
            "usage": None,
        }

    def _item(self, block: AnswerBlock, status: str) -> dict[str, Any]:
        done = status == "completed"
        item: dict[str, Any] = {"id": self._item_id(block), "status": status}
        if block.is_call:
            kind, given = ("custom_tool_call", "input") if block.kind == "custom" else ("function_call", "arguments")
            call = {"type": kind, "call_id": f"call_{block.id}", "name": block.name}
            return item | call | {given: block.text if done else ""}
        is_thought = block.kind == "reasoning"
        said = {"type": "reasoning", "summary": []} if is_thought else {"type": "message", "role": "assistant"}
        return item | said | {"content": [self._part(block, block.text)] if done else []}

    def _part(self, block: AnswerBlock, text: str) -> dict[str, Any]:
        if block.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        logprobs: list[dict[str, Any]] = []
        if text and self.request.logprobs:
            names = TokenNames(self._state.texts.tokenizer, self.request.return_tokens_as_token_ids)
            logprobs = chat_logprobs(names, self.choice.token_ids, self.choice.logprobs)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def _tokens(self) -> dict[str, Any]:
        usage = self.usage()
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {**usage["prompt_tokens_details"], "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": usage.get("completion_tokens_details", {"reasoning_tokens": 0}),
            "total_tokens": usage["total_tokens"],
        }

    def _numbered(self, event: dict[str, Any]) -> dict[str, Any]:
        self._events_told += 1
        return event | {"sequence_number": self._events_told - 1}

    def _item_id(self, block: AnswerBlock) -> str:
        """With the response's own in it where that is stored: by it the item is found."""
        kind = {"reasoning": "rs", "text": "msg", "call": "fc", "custom": "ctc"}[block.kind]
        return f"{kind}_{self.head['id'].removeprefix('resp_')}_{block.id}" if self.is_stored else f"{kind}_{block.id}"

    def _at(self, block: AnswerBlock) -> dict[str, Any]:
        place = {"item_id": self._item_id(block), "output_index": block.index}
        return place if block.is_call else place | {"content_index": 0}


async def _begin(state: ServerState, body: ResponsesRequest, caller: Caller) -> ResponsesAnswer:
    if body.n != 1:
        raise field_error("n", "a response has one answer")
    body, before = await read(state, body, caller)
    session, is_new = await session_for(state, body, caller, before)
    try:
        chat, fields = body.as_chat(session.id if session else None, before.earlier)
        with renaming(fields):
            answer = await begin_chat(state, chat, caller, ResponsesAnswer)
    except BaseException as error:
        if isinstance(error, ApiError) and error.code == "context_length_exceeded" and body.truncation == "auto":
            error.message += "; truncation is not done here: send fewer items"
        if session is not None and is_new:
            state.client.run_in_background(close(state, session))
        raise
    assert isinstance(answer, ResponsesAnswer)
    if session is not None:
        answer.head["id"] = f"resp_{session.id}_{session.turns}"
    answer.asked, answer.fields, answer.is_stored = body, fields, session is not None
    return answer
