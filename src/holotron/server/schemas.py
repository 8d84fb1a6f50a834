"""Requests as they arrive: OpenAI's fields, ours beside them, and a bound on everything.

Clients send back what they were sent, with fields of their own: unknown fields of messages are ignored, those of
requests are told (unknown_fields.py), and null is the default. Light to import: a process that only reads bodies does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from holotron.engine.limits import MAX_LOGPROBS, MAX_STOPS
from holotron.server.fields import (
    MAX_TOKENS,
    Body,
    Count,
    ImageText,
    Number,
    OperatorBody,
    Options,
    Request,
    ShortText,
    StopText,
    Text,
    TokenId,
)
from holotron.server.tool_schemas import AllowedChoice, AnyToolCall, CustomTool, ToolChoice, Tools

if TYPE_CHECKING:
    from holotron.engine.grammar import Grammar

MAX_MESSAGES = 16_384
MAX_PARTS = 16_384  # of all messages of a request


# ---- messages ----


class TextPart(Request):
    type: Literal["text"]
    text: Text


class ImageUrl(Request):
    url: ImageText
    detail: ShortText = "auto"


class ImagePart(Request):
    type: Literal["image_url"]
    image_url: ImageUrl


class RefusalPart(Request):
    type: Literal["refusal"]
    refusal: Text

    @property
    def text(self) -> str:
        return self.refusal


Part = Annotated[TextPart | ImagePart | RefusalPart, Field(discriminator="type")]


class ChatMessage(Request):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[Part], Field(max_length=4096)] | None = None
    name: ShortText | None = None
    tool_calls: Annotated[list[AnyToolCall], Field(max_length=256)] | None = None
    tool_call_id: ShortText | None = None
    reasoning_content: Text | None = None


def _bounded(messages: Any) -> Any:
    """Refuse too many parts before any of them is looked at."""
    if isinstance(messages, list):
        contents = [message.get("content") for message in messages[:MAX_MESSAGES] if isinstance(message, dict)]
        parts = sum(len(content) for content in contents if isinstance(content, list))
        if parts > MAX_PARTS:
            raise ValueError(f"{parts:,} content parts are more than the {MAX_PARTS:,} that a request may have")
    return messages


Messages = Annotated[list[ChatMessage], Field(max_length=MAX_MESSAGES), BeforeValidator(_bounded)]


# ---- options ----


class JsonSchema(Options):
    name: ShortText = "answer"
    description: Text | None = None
    schema_: dict[str, JsonValue] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Options):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("type is json_schema, so json_schema must be given")
        return self


class StructuredOutputs(Request):
    """A JSON schema, a regular expression, a choice of texts, or a Lark grammar."""

    model_config = ConfigDict(extra="forbid")  # every field of it changes the answer

    json_: dict[str, JsonValue] | Text | None = Field(default=None, alias="json")
    regex: Text | None = None
    choice: Annotated[list[ShortText], Field(min_length=1, max_length=4096)] | None = None
    grammar: Text | None = None

    @model_validator(mode="after")
    def _one(self) -> StructuredOutputs:
        if sum(value is not None for value in (self.json_, self.regex, self.choice, self.grammar)) != 1:
            raise ValueError("give exactly one of json, regex, choice and grammar")
        return self

    def as_grammar(self) -> Grammar:
        """What the engine holds an answer to. GrammarError if it cannot."""
        from holotron.engine.grammar import Grammar

        if isinstance(self.json_, str):
            return Grammar("json_schema", self.json_)
        if self.json_ is not None:
            return Grammar.from_schema(self.json_)
        if self.regex is not None:
            return Grammar("regex", self.regex)
        if self.choice is not None:
            return Grammar.from_choices(self.choice)
        return Grammar("lark", self.grammar or "")


class StreamOptions(Options):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool | None = None


class Sampling(Body):
    """How tokens are chosen; the same for chats and completions."""

    temperature: Annotated[Number, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[Number, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[Count, Field(ge=-1, le=2**31)] = 0
    min_p: Annotated[Number, Field(ge=0, le=1)] = 0.0
    prompt_logprobs: Annotated[Count, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63, strict=True)] | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] = Field(default_factory=list)
    ignore_eos: bool = False
    min_tokens: Annotated[Count, Field(ge=0, le=MAX_TOKENS)] = 0
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] = 0.0
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[Number, Field(ge=0.01, le=100)] = 1.0
    logit_bias: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Annotated[Number, Field(ge=-100, le=100)]] | None = (
        Field(default=None, max_length=4096)
    )
    n: Annotated[Count, Field(ge=1, le=1024)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    structured_outputs: StructuredOutputs | None = None
    session_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    expected_turns: Annotated[Count, Field(ge=0, le=2**31)] | None = None  # of the session, before this one
    keep_partial: bool = False  # in the session, if the client leaves or time is up
    cache_salt: Annotated[str, Field(min_length=1, max_length=256)] | None = None  # only prompts with the same share
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    model: ShortText | None = None
    user: ShortText | None = None

    @property
    def prompt_logprob_count(self) -> int | None:
        """How many alternatives each token of the prompt is told with; None: none is."""
        return self.prompt_logprobs


class ChatRequest(Sampling):
    """POST /v1/chat/completions. With `session_id`, `messages` are only the new ones."""

    messages: Messages
    max_tokens: Annotated[Count, Field(ge=1, le=MAX_TOKENS)] | None = None
    max_completion_tokens: Annotated[Count, Field(ge=1, le=MAX_TOKENS)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[Count, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[ShortText, JsonValue] = Field(default_factory=dict)
    separate_reasoning: bool = True
    # What OpenAI's service takes and what makes no difference here.
    metadata: dict[ShortText, Text] | None = None
    store: bool | None = None
    service_tier: ShortText | None = None
    reasoning_effort: ShortText | None = None
    verbosity: ShortText | None = None
    modalities: list[Literal["text"]] | None = None
    prompt_cache_key: ShortText | None = None
    safety_identifier: ShortText | None = None

    @model_validator(mode="after")
    def _sensible(self) -> ChatRequest:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs to be true")
        if self.tool_choice not in (None, "none", "auto") and not self.tools:
            raise ValueError("tool_choice wants a tool call, but there are no tools")
        forms = (self.response_format is not None and self.response_format.type != "text", self.structured_outputs)
        if sum(map(bool, forms)) > 1:
            raise ValueError("response_format and structured_outputs exclude each other")
        if self.must_call and self.structured_outputs is not None:
            raise ValueError("tool_choice wants a tool call, and structured_outputs another form; give one of them")
        return self

    @property
    def must_call(self) -> bool:
        """Whether the answer has to be a tool call."""
        choice = self.tool_choice
        mode = choice.allowed_tools.mode if isinstance(choice, AllowedChoice) else choice
        return mode not in (None, "none", "auto")

    @property
    def callable_tools(self) -> set[str] | None:
        """The names of the tools that may be called; None: all may."""
        match self.tool_choice:
            case "none":
                return set()
            case AllowedChoice() as choice:
                return {tool.name for tool in choice.allowed_tools.tools}
            case None | str():
                return None
        return {self.tool_choice.name}

    @property
    def must_hold(self) -> bool:
        """Whether calls, where there are any, have to be held to something: some of the tools, or a form of theirs."""
        formed = any(isinstance(tool, CustomTool) and tool.grammar is not None for tool in self.tools or ())
        return isinstance(self.tool_choice, AllowedChoice) or (formed and self.tool_choice != "none")

    @property
    def form(self) -> dict[str, Any] | None:
        """The JSON schema that the text of the answer must satisfy."""
        if self.response_format is None or self.response_format.type == "text":
            return None
        return self.response_format.json_schema.schema_ if self.response_format.json_schema else {"type": "object"}

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def logprob_count(self) -> int | None:
        """How many alternatives each token is told with; None: no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(Sampling):
    """POST /v1/completions. The prompt is a text or token ids, one or several of them."""

    prompt: (
        Text
        | Annotated[list[TokenId], Field(min_length=1, max_length=MAX_TOKENS)]
        | Annotated[list[Text], Field(min_length=1, max_length=64)]
        | Annotated[list[Annotated[list[TokenId], Field(min_length=1)]], Field(min_length=1, max_length=64)]
    )
    max_tokens: Annotated[Count, Field(ge=1, le=MAX_TOKENS)] | None = 16
    logprobs: Annotated[Count, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool = False
    best_of: Literal[1] | None = None
    suffix: None = None
    images: Annotated[list[ImageText], Field(max_length=1024)] | None = None  # of a prompt in tokens

    @model_validator(mode="after")
    def _sensible(self) -> CompletionRequest:
        if self.session_id is not None and (self.n > 1 or len(self.prompts) > 1):
            raise ValueError("n and the number of prompts must be 1 in a session, which has one future")
        return self

    @property
    def prompt_logprob_count(self) -> int | None:
        echoed = self.logprobs if self.echo else None
        return max((count for count in (self.prompt_logprobs, echoed) if count is not None), default=None)

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        """The prompts, each a text or token ids."""
        prompt: Any = self.prompt
        return prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens

    @property
    def logprob_count(self) -> int | None:
        return self.logprobs


# ---- text ----


class TokenizeRequest(Body):
    """POST /tokenize: a text, or messages as the chat template writes them."""

    model: ShortText | None = None
    prompt: Text | None = None
    messages: Messages | None = None
    tools: Tools | None = None
    add_generation_prompt: bool = True
    add_special_tokens: bool = False
    chat_template_kwargs: dict[ShortText, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give either prompt or messages")
        return self


class DetokenizeRequest(Body):
    """POST /detokenize."""

    model: ShortText | None = None
    tokens: Annotated[list[TokenId], Field(max_length=MAX_TOKENS)]
    skip_special_tokens: bool = False


# ---- sessions ----


class OpenRequest(Body):
    """POST /v1/sessions. model: the served model, or one of its adapters, with which every turn is then computed."""

    model: ShortText | None = None
    ttl: Annotated[Number, Field(gt=0, le=30 * 86400)] | None = None
    on_update: Literal["keep", "recompute", "drop"] = "keep"
    keep_images: Annotated[Count, Field(ge=0, le=1000)] | None = None


class ForkRequest(Body):
    n: Annotated[Count, Field(ge=1, le=256)] = 1


class RollbackRequest(Body):
    """Forget that turn and all after it; with keep_prompt only its answer. Negative turns count from the end."""

    turn: Annotated[Count, Field(ge=-65536, le=65536)] = -1
    keep_prompt: bool = False


# ---- the operator's ----


class PauseRequest(OperatorBody):
    mode: Literal["keep", "wait", "abort"] = "keep"


class SleepRequest(OperatorBody):
    weights: bool = False


class UpdateRequest(OperatorBody):
    """New weights from a folder or safetensors file that the engine's process can read."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    version: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class AdapterRequest(OperatorBody):
    """PUT /admin/adapters/{name}: a LoRA adapter from a folder that the engine's process can read."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    version: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class AbortRequest(Body):
    """POST /abort_request: a turn by the id of its request or its answer, or all of the caller's."""

    rid: ShortText | None = Field(default=None, validation_alias=AliasChoices("rid", "request_id"))
    abort_all: bool = False

    @model_validator(mode="after")
    def _one(self) -> AbortRequest:
        if (self.rid is None) != self.abort_all:
            raise ValueError("give either rid or abort_all")
        return self
