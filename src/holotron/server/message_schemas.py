"""Requests to /v1/messages as they arrive, and the chat requests that they are."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from holotron.engine.limits import MAX_STOPS
from holotron.server.fields import MAX_TOKENS, Count, ImageText, Request, ShortText, StopText, Text
from holotron.server.schemas import ChatRequest, Sampling
from holotron.server.tool_schemas import refuse_hosted
from holotron.server.translation import chat_request


class TextBlock(Request):
    type: Literal["text"]
    text: Text
    cache_control: JsonValue = None
    citations: JsonValue = None


class ImageSource(Request):
    type: Literal["base64", "url"]
    media_type: ShortText = "image/png"
    data: ImageText | None = None
    url: Text | None = None

    @property
    def as_url(self) -> str:
        return f"data:{self.media_type};base64,{self.data or ''}" if self.type == "base64" else self.url or ""


class ImageBlock(Request):
    type: Literal["image"]
    source: ImageSource
    cache_control: JsonValue = None


FlatBlock = TextBlock | ImageBlock
NO_PDF = (
    "PDFs and files are not read here; send their text as a source of the type text, or their pages as image blocks"
)


class DocumentSource(Request):
    type: Literal["base64", "text", "content", "url", "file"]
    media_type: ShortText = "text/plain"
    data: Text | None = None
    content: (
        Text | Annotated[list[Annotated[FlatBlock, Field(discriminator="type")]], Field(max_length=4096)] | None
    ) = None

    @model_validator(mode="after")
    def _readable(self) -> DocumentSource:
        if self.type in ("url", "file") or not self.media_type.startswith("text/"):
            raise ValueError(NO_PDF)
        name = "content" if self.type == "content" else "data"
        if (given := getattr(self, name)) is None:
            raise ValueError(f"type is {self.type}, so {name} must be given")
        if self.type == "base64":
            try:
                given = base64.b64decode(given, validate=True).decode()
            except ValueError as error:
                raise ValueError(f"data is not a text in base64: {error}") from error
        self.content = given
        return self


class DocumentBlock(Request):
    """A document is its title, what is said about it, and its text and images."""

    type: Literal["document"]
    source: DocumentSource
    title: Text | None = None
    context: Text | None = None

    @property
    def blocks(self) -> list[FlatBlock]:
        given = self.source.content or ""
        return _headed(given if isinstance(given, list) else [_text(given)], self.title, self.context)


class SearchResultBlock(Request):
    type: Literal["search_result"]
    source: Text
    title: Text
    content: Annotated[list[TextBlock], Field(max_length=4096)]

    @property
    def blocks(self) -> list[FlatBlock]:
        return _headed(self.content, self.title, self.source)


def _headed(blocks: Sequence[FlatBlock], *head: str | None) -> list[FlatBlock]:
    lines = "".join(f"{line}\n" for line in head if line)
    return [_text(f"{lines}\n"), *blocks] if lines else list(blocks)


def _text(text: str) -> TextBlock:
    return TextBlock(type="text", text=text)


class ToolUseBlock(Request):
    type: Literal["tool_use"]
    id: ShortText
    name: ShortText
    input: dict[str, JsonValue]
    cache_control: JsonValue = None
    caller: JsonValue = None


class ThinkingBlock(Request):
    type: Literal["thinking"]
    thinking: Text
    signature: Text = ""


class RedactedBlock(Request):
    type: Literal["redacted_thinking"]
    data: Text


SaidBlock = TextBlock | ImageBlock | DocumentBlock | SearchResultBlock
ResultBlock = Annotated[SaidBlock, Field(discriminator="type")]


class ToolResultBlock(Request):
    type: Literal["tool_result"]
    tool_use_id: ShortText
    content: Text | Annotated[list[ResultBlock], Field(max_length=4096)] | None = None
    is_error: bool | None = None
    cache_control: JsonValue = None


ContentBlock = Annotated[
    SaidBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedBlock,
    Field(discriminator="type"),
]


class MessageParam(Request):
    role: Literal["user", "assistant", "system"]
    content: Text | Annotated[list[ContentBlock], Field(max_length=4096)]


class ToolParam(Request):
    type: Annotated[Literal["custom"] | None, BeforeValidator(refuse_hosted)] = None
    name: ShortText
    description: Text | None = None
    input_schema: dict[str, JsonValue]
    strict: bool | None = None
    cache_control: JsonValue = None


class ToolChoice(Request):
    type: Literal["auto", "any", "tool", "none"]
    name: ShortText | None = None
    disable_parallel_tool_use: bool = False


class ThinkingOption(Request):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[Count, Field(ge=0)] | None = None
    display: ShortText | None = None


class OutputFormat(Request):
    type: Literal["json_schema"]
    schema_: dict[str, JsonValue] = Field(alias="schema")


class OutputConfig(Request):
    format: OutputFormat | None = None
    effort: ShortText | None = None


class CountRequest(Sampling):
    """POST /v1/messages/count_tokens: a prompt in Anthropic's dialect."""

    messages: Annotated[list[MessageParam], Field(max_length=65536)]
    system: Text | list[TextBlock] | None = None
    tools: Annotated[list[ToolParam], Field(max_length=512)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingOption | None = None
    output_config: OutputConfig | None = None
    cache_control: JsonValue = None

    def as_chat(self) -> tuple[ChatRequest, dict[str, str]]:
        """The chat request that this is, and what the client calls its fields."""
        messages, fields = _messages(self.messages, self.system)
        options: dict[str, Any] = {"messages": messages}
        if self.tools:
            options["tools"] = [_tool(tool) for tool in self.tools]
        if self.tool_choice is not None:
            choice, named = self.tool_choice, {"type": "function", "function": {"name": self.tool_choice.name}}
            options["tool_choice"] = named if choice.type == "tool" else CHOICES[choice.type]
            options["parallel_tool_calls"] = not choice.disable_parallel_tool_use
        if self.thinking is not None:
            options["chat_template_kwargs"] = {"enable_thinking": self.thinking.type != "disabled"}
        if self.output_config is not None and self.output_config.format is not None:
            schema = {"schema": self.output_config.format.schema_}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        fields |= {"response_format": "output_config.format", "stop": "stop_sequences"}
        return chat_request(self, options, fields), fields


class MessagesRequest(CountRequest):
    """POST /v1/messages."""

    max_tokens: Annotated[Count, Field(ge=1, le=MAX_TOKENS)]
    stop_sequences: Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    metadata: dict[ShortText, JsonValue] | None = None
    service_tier: ShortText | None = None
    container: None = None

    def as_chat(self) -> tuple[ChatRequest, dict[str, str]]:
        chat, fields = super().as_chat()
        ends: dict[str, Any] = {"max_tokens": self.max_tokens}
        if self.stop_sequences:
            ends["stop"] = self.stop_sequences
        return chat.model_copy(update=ends), fields


CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _tool(tool: ToolParam) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _messages(
    given: list[MessageParam], system: str | list[TextBlock] | None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Messages as chats have them: results of tools are messages of their own there."""
    messages: list[dict[str, Any]] = []
    fields = {"messages": "messages"}
    if system:
        text = system if isinstance(system, str) else "".join(block.text for block in system)
        messages.append({"role": "system", "content": text})
        fields["messages.0"] = "system"
    for number, message in enumerate(given):
        own = f"messages.{number}"
        if isinstance(message.content, str):
            fields[f"messages.{len(messages)}"] = own
            messages.append({"role": message.role, "content": message.content})
            continue
        part: dict[str, Any] = {"role": message.role, "content": []}
        for place, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock):
                inner = f"{own}.content.{place}.content"
                fields[f"messages.{len(messages)}"] = inner
                result: list[dict[str, Any]] = []
                for where, content in enumerate(_result(block)):
                    _add(result, content, len(messages), f"{inner}.{where}", fields)
                messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": result})
        place_here = len(messages)
        for place, block in enumerate(message.content):
            match block:
                case TextBlock() | ImageBlock() | DocumentBlock() | SearchResultBlock():
                    _add(part["content"], block, place_here, f"{own}.content.{place}", fields)
                case ToolUseBlock():
                    function = {"name": block.name, "arguments": json.dumps(block.input)}
                    part.setdefault("tool_calls", []).append({"id": block.id, "function": function})
                case ThinkingBlock():
                    part["reasoning_content"] = part.get("reasoning_content", "") + block.thinking
        if part["content"] or len(part) > 2 or not message.content:
            fields[f"messages.{place_here}"] = own
            messages.append(part)
    return messages, fields


def _result(block: ToolResultBlock) -> list[SaidBlock]:
    content = block.content or ""
    return [_text(content)] if isinstance(content, str) else list(content)


def _add(content: list[dict[str, Any]], block: SaidBlock, message: int, own: str, fields: dict[str, str]) -> None:
    """Add a block to a message's content, and note what the client calls it."""
    if isinstance(block, DocumentBlock | SearchResultBlock):
        for inner in block.blocks:
            _add(content, inner, message, own, fields)
        return
    if isinstance(block, TextBlock):
        content.append({"type": "text", "text": block.text})
        return
    fields[f"messages.{message}.content.{len(content)}.image_url.url"] = f"{own}.source"
    content.append({"type": "image_url", "image_url": {"url": block.source.as_url}})
