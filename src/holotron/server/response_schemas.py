"""Requests to /v1/responses as they arrive, and the chat requests that they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag

from holotron.engine.limits import MAX_LOGPROBS
from holotron.server.fields import MAX_TOKENS, Count, ImageText, Request, ShortText, Text
from holotron.server.schemas import ChatRequest, Sampling
from holotron.server.tool_schemas import kind_of, refuse_hosted
from holotron.server.translation import chat_request


class InputText(Request):
    type: Literal["input_text", "output_text", "text"]
    text: Text
    annotations: JsonValue = None
    logprobs: JsonValue = None


class InputImage(Request):
    type: Literal["input_image"]
    image_url: ImageText
    detail: Literal["auto", "low", "high", "original"] | None = "auto"
    file_id: None = None


class InputRefusal(Request):
    type: Literal["refusal"]
    refusal: Text


InputPart = Annotated[InputText | InputImage | InputRefusal, Field(discriminator="type")]
InputParts = Annotated[list[InputPart], Field(max_length=4096)]


class ToldItem(Request):
    """What answers tell of an item besides what it says."""

    id: ShortText | None = None
    status: ShortText | None = None


class InputMessage(ToldItem):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | InputParts
    phase: ShortText | None = None


class InputCall(ToldItem):
    type: Literal["function_call"]
    call_id: ShortText
    name: ShortText
    arguments: Text


class InputCustomCall(ToldItem):
    type: Literal["custom_tool_call"]
    call_id: ShortText
    name: ShortText
    input: Text


class InputCallOutput(ToldItem):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: ShortText
    output: Text | InputParts


class ReasoningText(Request):
    type: Literal["reasoning_text", "summary_text"]
    text: Text


class InputReasoning(ToldItem):
    type: Literal["reasoning"]
    summary: list[ReasoningText] = Field(default_factory=list)
    content: list[ReasoningText] | None = None
    encrypted_content: Text | None = None


class InputReference(Request):
    """An item of a stored response, by its id."""

    type: Literal["item_reference"]
    id: ShortText


def _item_kind(value: Any) -> str:
    return str(value.get("type", "message") if isinstance(value, dict) else getattr(value, "type", "message"))


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[InputCustomCall, Tag("custom_tool_call")]
    | Annotated[InputCallOutput, Tag("function_call_output")]
    | Annotated[InputCallOutput, Tag("custom_tool_call_output")]
    | Annotated[InputReasoning, Tag("reasoning")]
    | Annotated[InputReference, Tag("item_reference")],
    Discriminator(
        _item_kind,
        custom_error_type="item_type",
        custom_error_message="items are messages, calls of functions and custom tools, their outputs, reasoning, "
        "and references to items of stored responses",
    ),
]


class FunctionTool(Request):
    type: Annotated[Literal["function"], BeforeValidator(refuse_hosted)]
    name: ShortText
    description: Text | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None

    def as_chat(self) -> dict[str, Any]:
        return {"type": "function", "function": self.model_dump(exclude={"type"}, exclude_none=True)}


class CustomFormat(Request):
    type: Literal["text", "grammar"] = "text"
    syntax: Literal["lark", "regex"] | None = None
    definition: Text | None = None


class CustomToolParam(Request):
    type: Literal["custom"]
    name: ShortText
    description: Text | None = None
    format: CustomFormat = CustomFormat()

    def as_chat(self) -> dict[str, Any]:
        form = self.format.model_dump(include={"syntax", "definition"}, exclude_none=True)
        custom = self.model_dump(include={"name", "description"}, exclude_none=True)
        return {"type": "custom", "custom": custom | {"format": {"type": self.format.type, "grammar": form or None}}}


AnyToolParam = Annotated[
    Annotated[FunctionTool, Tag("function")] | Annotated[CustomToolParam, Tag("custom")], Discriminator(kind_of)
]


class NamedToolParam(Request):
    type: Annotated[Literal["function", "custom"], BeforeValidator(refuse_hosted)]
    name: ShortText

    def as_chat(self) -> dict[str, Any]:
        return {"type": self.type, self.type: {"name": self.name}}


class AllowedToolsParam(Request):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedToolParam], Field(min_length=1, max_length=512)]

    def as_chat(self) -> dict[str, Any]:
        tools = [tool.as_chat() for tool in self.tools]
        return {"type": "allowed_tools", "allowed_tools": {"mode": self.mode, "tools": tools}}


ToolChoiceParam = Annotated[
    Annotated[NamedToolParam, Tag("function")]
    | Annotated[NamedToolParam, Tag("custom")]
    | Annotated[AllowedToolsParam, Tag("allowed_tools")],
    Discriminator(kind_of),
]


class TextFormat(Request):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: ShortText = "answer"
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    description: Text | None = None
    strict: bool | None = None


class TextOptions(Request):
    format: TextFormat | None = None
    verbosity: ShortText | None = None


def _refused(instead: str) -> Callable[[Any], Any]:
    def refuse(value: Any) -> Any:
        if value:
            raise ValueError(f"this server has none of OpenAI's; {instead}")
        return value or None

    return refuse


MetadataKey = Annotated[str, Field(max_length=64)]


class ResponsesRequest(Sampling):
    """POST /v1/responses. `previous_response_id` goes on in the session of that response."""

    input: Text | Annotated[list[InputItem], Field(max_length=65536)]
    instructions: Text | None = None
    max_output_tokens: Annotated[Count, Field(ge=1, le=MAX_TOKENS)] | None = None
    previous_response_id: ShortText | None = None
    store: bool | None = None
    tools: Annotated[list[AnyToolParam], Field(max_length=512)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoiceParam | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    top_logprobs: Annotated[Count, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    include: list[ShortText] | None = None
    chat_template_kwargs: dict[ShortText, JsonValue] | None = None
    background: Annotated[Literal[False] | None, BeforeValidator(_refused("ask with stream, or wait"))] = None
    conversation: Annotated[None, BeforeValidator(_refused("go on from previous_response_id"))] = None
    prompt: Annotated[None, BeforeValidator(_refused("write it out in input and instructions"))] = None
    # What OpenAI's service takes and what makes no difference here.
    metadata: Annotated[dict[MetadataKey, ShortText], Field(max_length=16)] | None = None
    reasoning: dict[ShortText, JsonValue] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: ShortText | None = None
    prompt_cache_key: ShortText | None = None
    safety_identifier: ShortText | None = None

    @property
    def wants_logprobs(self) -> bool:
        return "message.output_text.logprobs" in (self.include or ())

    @property
    def head(self) -> Any:
        """What its prompt begins with, apart from the conversation: the instructions and tools."""
        return self.instructions or None, [tool.model_dump(exclude_none=True) for tool in self.tools or ()]

    @property
    def items(self) -> list[InputItem]:
        return [InputMessage(role="user", content=self.input)] if isinstance(self.input, str) else self.input

    def as_chat(
        self, session_id: str | None = None, earlier: Sequence[InputItem] | None = ()
    ) -> tuple[ChatRequest, dict[str, str]]:
        """The chat request that this is, in that session, and what the client calls its fields.

        earlier: the items to write before its own; None where the session has those, and the instructions, already.
        """
        own = "input" if isinstance(self.input, str) else "input.{}"
        items = [("previous_response_id", item) for item in earlier or ()]
        items += [(own.format(number), item) for number, item in enumerate(self.items)]
        messages, fields = _messages(items, None if earlier is None else self.instructions)
        options: dict[str, Any] = {
            "messages": messages,
            "max_completion_tokens": self.max_output_tokens,
            "session_id": session_id or self.session_id,
            "logprobs": self.wants_logprobs,
            "top_logprobs": self.top_logprobs if self.wants_logprobs else None,
            "chat_template_kwargs": self.chat_template_kwargs or {},
        }
        if self.tools:
            options["tools"] = [tool.as_chat() for tool in self.tools]
        if self.tool_choice is not None:
            choice = self.tool_choice
            options["tool_choice"] = choice if isinstance(choice, str) else choice.as_chat()
        if self.parallel_tool_calls is not None:
            options["parallel_tool_calls"] = self.parallel_tool_calls
        if self.text is not None and self.text.format is not None:
            form = self.text.format
            schema = {"name": form.name, "schema": form.schema_, "strict": form.strict}
            options["response_format"] = {"type": form.type} | ({"json_schema": schema} if form.schema_ else {})
        fields |= {"response_format": "text.format", "max_tokens": "max_output_tokens"}
        fields |= {"max_completion_tokens": "max_output_tokens"}
        return chat_request(self, options, fields), fields


def _messages(
    items: Sequence[tuple[str, InputItem]], instructions: str | None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Messages as chats have them, of items with their fields. What one answer has is one message there."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    fields = {"messages": "input", **({"messages.0": "instructions"} if instructions else {})}
    answering = False  # whether the last message is an answer that the next item may belong to
    for own, item in items:
        part: dict[str, Any]
        match item:
            case InputReasoning():
                thought = "".join(one.text for one in item.content or item.summary)
                part = {"role": "assistant", "reasoning_content": thought}
            case InputCall():
                function = {"name": item.name, "arguments": item.arguments}
                part = {"role": "assistant", "tool_calls": [{"id": item.call_id, "function": function}]}
            case InputCustomCall():
                custom = {"name": item.name, "input": item.input}
                part = {"role": "assistant", "tool_calls": [{"id": item.call_id, "type": "custom", "custom": custom}]}
            case InputCallOutput():
                part = {"role": "tool", "tool_call_id": item.call_id, "content": _parts(item.output)}
                own += ".output"
            case InputMessage():
                part = {"role": item.role, "content": _parts(item.content)}
        is_answer = part["role"] == "assistant"
        if is_answer and answering and not ("content" in part and "content" in messages[-1]):
            calls = [*messages[-1].get("tool_calls", []), *part.get("tool_calls", [])]
            messages[-1] |= part | ({"tool_calls": calls} if calls else {})
        else:
            fields[f"messages.{len(messages)}"] = own
            if isinstance(item, InputCallOutput):
                fields[f"messages.{len(messages)}.content"] = own
            messages.append(part)
        answering = is_answer
    for number, message in enumerate(messages):
        for place, content in enumerate(message["content"]) if isinstance(message.get("content"), list) else ():
            if content["type"] == "image_url":
                own = fields.get(f"messages.{number}.content", f"{fields[f'messages.{number}']}.content")
                fields[f"messages.{number}.content.{place}.image_url.url"] = f"{own}.{place}.image_url"
    return messages, fields


def _parts(content: str | list[InputPart]) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for part in content:
        match part:
            case InputImage():
                parts.append({"type": "image_url", "image_url": {"url": part.image_url}})
            case InputRefusal():
                parts.append({"type": "text", "text": part.refusal})
            case InputText():
                parts.append({"type": "text", "text": part.text})
    return parts
