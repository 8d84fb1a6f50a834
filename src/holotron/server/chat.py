"""Chat turns: messages to tokens, tokens to messages."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from holotron.engine.grammar import Grammar, GrammarError
from holotron.model.errors import ModelError
from holotron.model.text.conversation import Conversation, Written
from holotron.server import messages as m
from holotron.server.auth import Caller
from holotron.server.errors import ApiError, as_api_error
from holotron.server.images import SentImage
from holotron.server.logprobs import chat_logprobs
from holotron.server.schemas import ChatMessage, ChatRequest, ImagePart, NamedTool, TokenizeRequest
from holotron.server.sessions import OpenSession
from holotron.server.state import State, state_of
from holotron.server.streaming import DONE, EventStream, event, unless_gone
from holotron.server.tools import ToolCall, ToolSplitter, call_grammar, check_tools
from holotron.server.turns import ActiveTurn, Choice, begin_turn, sampling_params

DEEPEST_ARGUMENTS = 100


async def answer_chat(http: Request, request: ChatRequest, caller: Caller) -> Response:
    """A chat turn from its request to its answer, whole or as events."""
    answer = await unless_gone(http, begin_chat(state_of(http), request, caller))
    http.state.turn = answer.turn
    if request.stream:
        return EventStream(answer.stream())
    return JSONResponse(await unless_gone(http, answer.whole()))


@dataclass
class Speaking:
    """One choice of an answer: its text divided into content and tool calls as it comes."""

    splitter: ToolSplitter | None
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def push(self, text: str, last: bool) -> tuple[str, list[ToolCall]]:
        if self.splitter is None:
            content, calls = text, list[ToolCall]()
        else:
            content, calls = self.splitter.push(text)
            if last:
                rest, more = self.splitter.finish()
                content, calls = content + rest, [*calls, *more]
        self.content += content
        self.calls += calls
        return content, calls


class ChatAnswer:
    """A chat turn and how it is told."""

    def __init__(self, state: State, request: ChatRequest, turn: ActiveTurn) -> None:
        self.id = f"chatcmpl-{uuid4().hex}"
        self.created = int(time.time())
        self.turn = turn
        self._state = state
        self._request = request
        tools = _tools(request) if request.tool_choice != "none" else None
        self._speaking = [
            Speaking(ToolSplitter(state.dialect, tools) if state.dialect and tools else None) for _ in turn.choices
        ]

    async def whole(self) -> dict[str, Any]:
        """The answer in one piece."""
        try:
            async for choice, happening in self.turn.events():
                self._speaking[choice.index].push(happening.text, isinstance(happening, m.Finished))
        finally:
            self.turn.close()
        answer = self._head("chat.completion")
        answer["choices"] = [self._choice(choice) for choice in self.turn.choices]
        answer["usage"] = self.turn.usage()
        return answer | self._extras()

    async def stream(self) -> AsyncIterator[bytes]:
        """The answer as it comes."""
        request = self._request
        try:
            for choice in self.turn.choices:
                yield self._chunk(choice, {"role": "assistant", "content": ""})
            async for choice, happening in self.turn.events():
                finished = isinstance(happening, m.Finished)
                content, calls = self._speaking[choice.index].push(happening.text, finished)
                told = len(self._speaking[choice.index].calls) - len(calls)
                delta: dict[str, Any] = {"content": content} if content else {}
                if calls:
                    delta["tool_calls"] = [{"index": told + i, **_call(call)} for i, call in enumerate(calls)]
                ids = happening.token_ids if isinstance(happening, m.Tokens) else ()
                if delta or finished or (ids and (request.logprobs or request.return_token_ids)):
                    yield self._chunk(choice, delta, len(ids), self._finish(choice) if finished else None)
            if request.stream_options and request.stream_options.include_usage:
                chunk = self._head("chat.completion.chunk")
                yield event(chunk | {"choices": [], "usage": self.turn.usage()} | self._extras())
            yield DONE
        except Exception as error:
            yield event(as_api_error(error).body())
            yield DONE
        finally:
            self.turn.close()

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self._state.settings.model_name}

    def _extras(self) -> dict[str, Any]:
        epoch = max((choice.epoch for choice in self.turn.choices), default=0)
        extras: dict[str, Any] = {"weight_version": self._state.client.version_of(epoch)}
        if self._request.session_id is not None:
            extras["session_id"] = self._request.session_id
        if self._request.return_token_ids:
            extras["prompt_token_ids"] = list(self.turn.prompt_ids)
        return extras

    def _finish(self, choice: Choice) -> str:
        calls = self._speaking[choice.index].calls
        return "tool_calls" if calls and choice.finish == "stop" else choice.finish or "stop"

    def _choice(self, choice: Choice) -> dict[str, Any]:
        spoken = self._speaking[choice.index]
        message: dict[str, Any] = {"role": "assistant", "content": spoken.content or (None if spoken.calls else "")}
        message["refusal"] = None
        if spoken.calls:
            message["tool_calls"] = [_call(call) for call in spoken.calls]
        told: dict[str, Any] = {"index": choice.index, "message": message, "finish_reason": self._finish(choice)}
        told["logprobs"] = self._logprobs(choice, 0, len(choice.token_ids))
        if self._request.return_token_ids:
            told |= choice.tokens(self._state.client.version_of)
        if choice.stop is not None:
            told["stop_reason"] = choice.stop
        return told

    def _chunk(self, choice: Choice, delta: dict[str, Any], new: int = 0, finish: str | None = None) -> bytes:
        end = len(choice.token_ids)
        told: dict[str, Any] = {"index": choice.index, "delta": delta, "finish_reason": finish}
        told["logprobs"] = self._logprobs(choice, end - new, end)
        if self._request.return_token_ids:
            told |= choice.tokens(self._state.client.version_of, end - new)
        return event(self._head("chat.completion.chunk") | {"choices": [told]})

    def _logprobs(self, choice: Choice, start: int, end: int) -> dict[str, Any] | None:
        if not self._request.logprobs:
            return None
        tokenizer = self._state.texts.tokenizer
        return {"content": chat_logprobs(tokenizer, choice.token_ids[start:end], choice.logprobs[start:end])}


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function}


def _tools(request: ChatRequest) -> list[dict[str, Any]] | None:
    return [tool.model_dump(exclude_none=True) for tool in request.tools] if request.tools else None


# ---- beginning ----


async def begin_chat(state: State, request: ChatRequest, caller: Caller) -> ChatAnswer:
    """From a request to a turn that the engine has taken; every refusal names its field."""
    state.check_model(request.model)
    # Not the schema's business: a path may name the session, too.
    if not request.messages and request.session_id is None:
        raise ApiError(400, "messages: at least one is needed outside of a session", param="messages")
    if request.n > 1 and request.session_id is not None:
        raise ApiError(400, "n: it must be 1 in a session, which has one future; fork it for more", param="n")
    if request.n > state.settings.max_choices:
        raise ApiError(400, f"n: {request.n} is more than {state.settings.max_choices}", param="n")
    if request.tools:
        try:
            check_tools(_tools(request) or [])
        except ValueError as error:
            raise ApiError(400, f"tools: {error}", param="tools", code="invalid_value") from error
        if state.dialect is None:
            raise ApiError(400, "tools: this model's chat template has no markup for them", param="tools")
    images = await state.images.read(request.messages)
    grammar = _grammar(state, request)
    held = ExitStack()
    try:
        held.enter_context(state.admission.enter(caller, request.n))
        if request.session_id is not None:
            session = state.sessions.find(request.session_id, caller)
            await session.rest()
            held.enter_context(session.working())
            return await _in_session(state, request, session, images, grammar, held)
        written = _write(state.texts.prompts.start(), request, images)
        turn = await _begin(state, request, written, images, grammar, held, pool=caller.name)
        return ChatAnswer(state, request, turn)
    except BaseException:
        held.close()
        raise


async def _in_session(
    state: State,
    request: ChatRequest,
    session: OpenSession,
    images: list[SentImage],
    grammar: Grammar | None,
    held: ExitStack,
) -> ChatAnswer:
    if session.conversation is None:
        raise ApiError(
            400, "session_id: this session was given tokens, and goes on with tokens only", param="session_id"
        )
    conversation = session.conversation.fork()  # the session's own only once the engine has taken the turn
    written = _write(conversation, request, images)
    turn = await _begin(state, request, written, images, grammar, held, session=session)
    session.conversation = conversation
    session.turns += 1
    held.callback(_remember, session, conversation, turn)
    return ChatAnswer(state, request, turn)


def _remember(session: OpenSession, conversation: Conversation, turn: ActiveTurn) -> None:
    """However the turn ended, the session has heard the question and said what it said."""
    choice = turn.choices[0]
    ended = choice.finish == "stop" and choice.token_ids and not isinstance(choice.stop, str)
    conversation.answered(choice.text, choice.token_ids[-1] if ended else None)
    session.tokens = turn.prompt_tokens + len(choice.token_ids)


async def _begin(
    state: State,
    request: ChatRequest,
    written: Written,
    images: list[SentImage],
    grammar: Grammar | None,
    held: ExitStack,
    *,
    session: OpenSession | None = None,
    pool: str | None = None,
) -> ActiveTurn:
    used = len(written.token_ids) + (session.tokens if session else 0)
    sampling = sampling_params(
        request,
        vocabulary=state.texts.config.vocab_size,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        room=state.max_context - used,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        grammar=grammar,
    )
    return await begin_turn(
        state.client,
        state.metrics,
        held,
        state.settings.request_seconds,
        written.token_ids,
        list(zip(written.places, images, strict=True)),
        sampling,
        fields={"invalid": "messages", "too_long": "messages", "grammar": _grammar_field(request)},
        session=session,
        pool=pool,
        choices=request.n,
    )


def _write(conversation: Conversation, request: ChatRequest, images: list[SentImage]) -> Written:
    """What the session lacks of the conversation with the new messages in it; without a session, all of it."""
    sizes = [image.size for image in images]
    try:
        return conversation.append(plain(request.messages), sizes, _tools(request), **template_kwargs(request))
    except ModelError as error:
        raise ApiError(400, f"messages: {error}", param="messages", code="invalid_value") from error


def template_kwargs(request: ChatRequest | TokenizeRequest) -> dict[str, Any]:
    """The template's own variables, none of which may pass for an argument of the server's."""
    taken = {"self", "messages", "sizes", "tools", "add_generation_prompt", "image_token"}
    if wrong := taken & request.chat_template_kwargs.keys():
        name = f"chat_template_kwargs.{min(wrong)}"
        raise ApiError(400, f"{name}: the server sets this itself", param=name, code="invalid_value")
    return dict(request.chat_template_kwargs)


def plain(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """Messages as chat templates know them; images are only places."""
    return [_plain(message) for message in messages]


def _plain(message: ChatMessage) -> dict[str, Any]:
    content: Any = message.content
    if isinstance(content, list):
        content = [
            {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
            for part in content
        ]
    result: dict[str, Any] = {"role": message.role, "content": content}
    for key in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, key)) is not None:
            result[key] = value
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    return result


def _arguments(text: str) -> Any:
    """Templates write arguments themselves, so they want the object and not its text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) and _is_within(value, DEEPEST_ARGUMENTS) else text


def _is_within(value: Any, depth: int) -> bool:
    """Whether nothing is nested deeper than that: what comes after this goes through values by recursion."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_is_within(item, depth - 1) for item in inner)


def _grammar_field(request: ChatRequest) -> str:
    """Where the request says what its answer must look like."""
    if request.structured_outputs is not None:
        return "structured_outputs"
    return "tools" if request.response_format is None else "response_format"


def _grammar(state: State, request: ChatRequest) -> Grammar | None:
    try:
        form = request.response_format
        if form is not None and form.type == "json_object":
            return Grammar("json_object")
        if form is not None and form.json_schema is not None:
            return Grammar.from_schema(form.json_schema.schema_)
        if request.structured_outputs is not None:
            return request.structured_outputs.as_grammar()
        if request.tool_choice == "required" or isinstance(request.tool_choice, NamedTool):
            assert state.dialect is not None
            name = request.tool_choice.function.name if isinstance(request.tool_choice, NamedTool) else None
            markup = state.texts.tokenizer.markup
            return call_grammar(state.dialect, _tools(request) or [], name, request.parallel_tool_calls, markup)
    except GrammarError as error:
        field = _grammar_field(request)
        raise ApiError(400, f"{field}: {error}", param=field, code="invalid_grammar") from error
    except ValueError as error:
        raise ApiError(400, f"tool_choice: {error}", param="tool_choice", code="invalid_value") from error
    return None
