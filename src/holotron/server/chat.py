"""Chat turns: messages to tokens, tokens to messages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from uuid import uuid4

from holotron.engine.grammar import Grammar, GrammarError
from holotron.engine.requests import Event, FinishEvent
from holotron.model.errors import ModelError
from holotron.model.text.conversation import Conversation, Written
from holotron.server.answer import TurnAnswer
from holotron.server.auth import Caller
from holotron.server.errors import blaming, field_error
from holotron.server.lengths import MOST_COUNTED, check_length, too_long
from holotron.server.logprobs import TokenNames, chat_logprobs, prompt_logprobs
from holotron.server.reasoning import ReasoningSplitter
from holotron.server.schemas import ChatMessage, ChatRequest, ImagePart, TokenizeRequest
from holotron.server.sessions import OpenSession
from holotron.server.state import ServerState
from holotron.server.tool_grammar import FREE_TEXT, call_grammar
from holotron.server.tool_markup import ToolCall
from holotron.server.tool_schemas import INPUT, CustomTool, FunctionCall, as_functions
from holotron.server.tools import ToolSplitter, check_tools
from holotron.server.turns import ActiveTurn, Choice, Prompt, begin_turn

DEEPEST_ARGUMENTS = 100
LONGEST_ARGUMENTS = 2**20
SHORT_MESSAGES, SHORT_TEXT = 32, 8192


@dataclass(frozen=True)
class AnswerPiece:
    """A piece of an answer, in this order: thoughts, text, calls."""

    reasoning: str
    content: str
    calls: Sequence[ToolCall]


class ChatAnswer(TurnAnswer[ChatRequest]):
    """The answer to messages: its text is divided into thoughts, content and tool calls."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    first_piece: ClassVar = {"delta": {"role": "assistant", "content": ""}}

    def __init__(self, state: ServerState, request: ChatRequest, turn: ActiveTurn) -> None:
        super().__init__(state, request, [turn])
        may = request.callable_tools
        tools = [tool for tool in as_functions(request.tools) or () if may is None or tool["function"]["name"] in may]
        self._customs = {tool.custom.name for tool in request.tools or () if isinstance(tool, CustomTool)}
        self._splitters = [ToolSplitter(state.dialect, tools) for _ in turn.choices] if state.dialect and tools else []
        self._thoughts = []
        if state.reasoning is not None and request.separate_reasoning:
            self._thoughts = [ReasoningSplitter(state.reasoning, turn.prompt.thinking) for _ in turn.choices]
        self._calls = Counter[int]()  # that each choice has made

    def body(self, choice: Choice) -> dict[str, Any]:
        said = self.said(choice, choice.text, True)
        content = said.content or (None if said.calls else "")
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if said.reasoning:
            message["reasoning_content"] = said.reasoning
        if said.calls:
            message["tool_calls"] = [_call(call) for call in said.calls]
        return {"message": message}

    def piece(self, choice: Choice, event: Event) -> dict[str, Any] | None:
        finished = isinstance(event, FinishEvent)
        told = self._calls[choice.index]
        said = self.said(choice, event.text, finished)
        delta: dict[str, Any] = {"content": said.content} if said.content else {}
        if said.reasoning:
            delta["reasoning_content"] = said.reasoning
        if said.calls:
            delta["tool_calls"] = [{"index": told + i, **_call(call)} for i, call in enumerate(said.calls)]
        if delta or finished:
            return {"delta": delta}
        # A token may have no text yet; what is known of it is told with none.
        return {"delta": {"content": ""}} if self.request.logprobs or self.request.return_token_ids else None

    def said(self, choice: Choice, text: str, last: bool) -> AnswerPiece:
        """What the next piece of a choice's text says."""
        reasoning = ""
        calls: list[ToolCall] = []
        if self._thoughts:
            reasoning, text = self._thoughts[choice.index].push(text, last)
        if self._splitters:
            text, calls = self._splitters[choice.index].push(text, last)
            calls = [_with_input(call) if call.name in self._customs else call for call in calls]
        self._calls[choice.index] += len(calls)
        return AnswerPiece(reasoning, text, calls)

    def finish_reason(self, choice: Choice) -> str:
        reason = super().finish_reason(choice)
        return "tool_calls" if reason == "stop" and self._calls[choice.index] else reason

    def usage(self) -> dict[str, Any]:
        usage, reasoning = super().usage(), self._state.reasoning
        if reasoning is not None:
            tokenizer, thinking = self._state.texts.tokenizer, self.turns[0].prompt.thinking
            thoughts = sum(reasoning.count(tokenizer, thinking, choice.token_ids) for choice in self.choices)
            usage["completion_tokens_details"] = {"reasoning_tokens": thoughts}
        return usage

    def logprobs(self, choice: Choice, start: int) -> dict[str, Any] | None:
        if not self.request.logprobs:
            return None
        names = TokenNames(self._state.texts.tokenizer, self.request.return_tokens_as_token_ids)
        return {"content": chat_logprobs(names, choice.token_ids[start:], choice.logprobs[start:])}

    def extras(self) -> dict[str, Any]:
        known = self.choices[0].prompt_logprobs
        if known is None or self.request.prompt_logprobs is None:
            return super().extras()
        names = TokenNames(self._state.texts.tokenizer, self.request.return_tokens_as_token_ids)
        return super().extras() | {"prompt_logprobs": prompt_logprobs(names, self.turns[0].prompt_ids, known)}

    def prompt(self) -> dict[str, Any]:
        return {"prompt_token_ids": list(self.turns[0].prompt_ids)} if self.request.return_token_ids else {}


def _call(call: ToolCall) -> dict[str, Any]:
    said = {"function": {"name": call.name, "arguments": call.arguments}}
    if call.input is not None:
        said = {"custom": {"name": call.name, "input": call.input}}
    return {"id": f"call_{uuid4().hex[:24]}", "type": next(iter(said)), **said}


def _with_input(call: ToolCall) -> ToolCall:
    """A call of a custom tool: what a model gives it without the form being kept is taken as it is."""
    given = json.loads(call.arguments).get(INPUT)
    return replace(call, input=given if isinstance(given, str) else call.arguments)


async def begin_chat(
    state: ServerState, request: ChatRequest, caller: Caller, dialect: type[ChatAnswer] = ChatAnswer
) -> ChatAnswer:
    """From a request to a turn that the engine has taken; every refusal names its field. `dialect` tells the answer."""
    state.check_model(request.model)
    # Not the schema's business: a path may name the session, too.
    if not request.messages and request.session_id is None:
        raise field_error("messages", "at least one is needed outside of a session")
    if request.n > 1 and request.session_id is not None:
        raise field_error("n", "it must be 1 in a session, which has one future; fork it for more")
    if request.n > state.settings.max_choices:
        raise field_error("n", f"{request.n} is more than {state.settings.max_choices}")

    def check() -> Grammar | None:
        """What is wrong with the request in itself, and the form that its answer must have."""
        if len(request.messages) > state.max_context:  # each has a token at least
            raise too_long("messages", state.max_context)
        check_length(state.texts.tokenizer, texts_of(request.messages), state.max_context, "messages")
        if tools:
            with blaming("tools", ValueError):
                check_tools(tools)
            if state.dialect is None:
                raise field_error("tools", "this model's chat template has no markup for them")
        return _grammar(state, request)

    tools = as_functions(request.tools)
    grammar = check() if _is_short(request) else await state.off_loop(check)
    images = await state.images.read(request.messages)

    def write(session: OpenSession | None) -> Prompt:
        """What the session lacks of the conversation with the new messages in it; without a session, all of it."""
        conversation = _conversation(state, session)
        sizes = [image.size for image in images]
        with blaming("messages", ModelError):
            written = conversation.append(list(map(plain, request.messages)), sizes, tools, **template_kwargs(request))
        prompt = Prompt(written.token_ids, list(zip(written.places, images, strict=True)), conversation)
        return prompt.thinking_in(state.reasoning, state.texts.tokenizer)

    async def prompt(session: OpenSession | None) -> Prompt:
        return write(session) if _is_short(request) else await state.off_loop(lambda: write(session))

    fields = {"invalid": "messages", "too_long": "messages", "grammar": _grammar_field(request)}
    turn = await begin_turn(state, request, caller, prompt, grammar, fields)
    return dialect(state, request, turn)


def _conversation(state: ServerState, session: OpenSession | None) -> Conversation:
    """The session's, to go on by itself."""
    if session is None:
        return state.texts.prompts.start()
    if session.conversation is None:
        raise field_error("session_id", "this session was given tokens, and goes on with tokens only")
    return session.conversation.fork()


async def write_prompt(
    state: ServerState,
    request: ChatRequest | TokenizeRequest,
    opened: bool = True,
    session: OpenSession | None = None,
) -> Written:
    """The messages of a request as the chat template writes them, outside of a session or as what one lacks."""
    messages = request.messages or []
    sizes = [image.size for image in await state.images.read(messages)]
    more = template_kwargs(request)

    def write() -> Written:
        most = max(MOST_COUNTED, state.max_context)
        check_length(state.texts.tokenizer, texts_of(messages), most, "messages")
        with blaming("messages", ModelError):
            tools = as_functions(request.tools)
            if session is not None:
                return _conversation(state, session).append(list(map(plain, messages)), sizes, tools, **more)
            return state.texts.prompts.write(list(map(plain, messages)), sizes, tools, opened, **more)

    return await state.off_loop(write)


def _is_short(request: ChatRequest) -> bool:
    """Whether it is worth no thread: then it takes a millisecond or so."""
    few = len(request.messages) <= SHORT_MESSAGES and not request.tools and not request.response_format
    return few and sum(map(len, texts_of(request.messages))) <= SHORT_TEXT


def texts_of(messages: Sequence[ChatMessage]) -> Iterator[str]:
    """Every text that a template may write down."""
    for message in messages:
        if isinstance(message.content, list):
            yield from (part.text for part in message.content if not isinstance(part, ImagePart))
        else:
            yield message.content or ""
        yield message.reasoning_content or ""
        yield from (call.function.arguments for call in message.tool_calls or ())


def template_kwargs(request: ChatRequest | TokenizeRequest) -> dict[str, Any]:
    """The template's own variables, none of which may pass for an argument of the server's."""
    taken = {"self", "messages", "sizes", "tools", "add_generation_prompt", "image_token"}
    if wrong := taken & request.chat_template_kwargs.keys():
        raise field_error(f"chat_template_kwargs.{min(wrong)}", "the server sets this itself", "invalid_value")
    return dict(request.chat_template_kwargs)


def plain(message: ChatMessage) -> dict[str, Any]:
    """A message as chat templates know it; images are only places."""
    result = message.model_dump(include={"role", "name", "tool_call_id", "reasoning_content"}, exclude_none=True)
    result["content"] = message.content
    if isinstance(message.content, list):
        result["content"] = [
            {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
            for part in message.content
        ]
    if message.tool_calls:
        result["tool_calls"] = [
            {"id": call.id, "type": "function", "function": _called(call.function)} for call in message.tool_calls
        ]
    return result


def _called(call: FunctionCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": _arguments(call.arguments)}


def _arguments(text: str) -> Any:
    """Templates write arguments themselves, so they want the object and not its text."""
    if len(text) > LONGEST_ARGUMENTS:
        return text
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
    return "response_format" if request.form is not None and not request.must_call else "tools"


def _grammar(state: ServerState, request: ChatRequest) -> Grammar | None:
    form = request.form
    with blaming("tool_choice", ValueError), blaming(_grammar_field(request), GrammarError, code="invalid_grammar"):
        if request.structured_outputs is not None:
            return request.structured_outputs.as_grammar()
        wants_form = form is not None and request.tool_choice != "none"
        if request.tools and (request.must_call or request.must_hold or wants_form):
            # A form is that of the text: calls stay possible, and where one is demanded there is no text.
            assert state.dialect is not None
            otherwise = None if request.must_call else FREE_TEXT if form is None else form
            tools, markup = as_functions(request.tools) or [], state.texts.tokenizer.markup
            may, parallel = request.callable_tools, request.parallel_tool_calls
            larks = {tool.custom.name: tool.lark for tool in request.tools if isinstance(tool, CustomTool)}
            return call_grammar(state.dialect, tools, may, parallel, markup, otherwise, larks)
        if form is not None:
            return Grammar.from_schema(form)
    return None
