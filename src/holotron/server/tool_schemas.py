"""Tools of chats as they arrive: functions with a JSON schema and custom tools with a text, and calls of them.

Models know functions only: a custom tool is a function with one text, `input`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag, model_validator

from holotron.server.fields import Options, Request, ShortText, Text

INPUT = "input"


def refuse_hosted(kind: Any) -> Any:
    """Tools of a provider's own have no schema: the first thing wrong with one is that."""
    if kind not in (None, "function", "custom"):
        raise ValueError(f"{str(kind)[:60]!r} is a tool of a provider's own; give it as a function with a JSON schema")
    return kind


def kind_of(value: Any) -> str:
    """What a tool, a call or a choice is, by its type; a function where it says none, or none that is known."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if kind in ("custom", "allowed_tools") else "function"


# ---- calls ----


class FunctionCall(Request):
    name: ShortText
    arguments: Text = ""


class CustomInput(Request):
    name: ShortText
    input: Text = ""


class RequestToolCall(Request):
    id: ShortText = ""
    type: Literal["function"] = "function"
    function: FunctionCall


class RequestCustomCall(Request):
    id: ShortText = ""
    type: Literal["custom"]
    custom: CustomInput

    @property
    def function(self) -> FunctionCall:
        arguments = json.dumps({INPUT: self.custom.input}, ensure_ascii=False)
        return FunctionCall(name=self.custom.name, arguments=arguments)


AnyToolCall = Annotated[
    Annotated[RequestToolCall, Tag("function")] | Annotated[RequestCustomCall, Tag("custom")], Discriminator(kind_of)
]


# ---- tools ----


class Function(Options):
    name: ShortText
    description: Text | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class Tool(Options):
    type: Annotated[Literal["function"], BeforeValidator(refuse_hosted)] = "function"
    function: Function


class InputGrammar(Options):
    syntax: Literal["lark", "regex"]
    definition: Text


class InputFormat(Options):
    type: Literal["text", "grammar"] = "text"
    grammar: InputGrammar | None = None

    @model_validator(mode="after")
    def _complete(self) -> InputFormat:
        if self.type == "grammar" and self.grammar is None:
            raise ValueError("type is grammar, so grammar must be given")
        return self


class Custom(Options):
    name: ShortText
    description: Text | None = None
    format: InputFormat | None = None


class CustomTool(Options):
    type: Literal["custom"]
    custom: Custom

    @property
    def grammar(self) -> InputGrammar | None:
        """The form that the input must have."""
        return self.custom.format.grammar if self.custom.format and self.custom.format.type == "grammar" else None

    @property
    def lark(self) -> str | None:
        return self.grammar.definition if self.grammar is not None and self.grammar.syntax == "lark" else None

    @property
    def function(self) -> Function:
        """The function that it is to a model."""
        given: dict[str, JsonValue] = {"type": "string"}
        told = self.custom.description
        if self.grammar is not None:
            form = f"The input has this form ({self.grammar.syntax}):\n{self.grammar.definition}"
            told = f"{told}\n\n{form}" if told else form
            if self.grammar.syntax == "regex":
                given["pattern"] = f"^(?:{self.grammar.definition})$"
        schema: dict[str, JsonValue] = {"type": "object", "properties": {INPUT: given}, "required": [INPUT]}
        return Function(name=self.custom.name, description=told, parameters=schema | {"additionalProperties": False})


AnyTool = Annotated[Annotated[Tool, Tag("function")] | Annotated[CustomTool, Tag("custom")], Discriminator(kind_of)]
Tools = Annotated[list[AnyTool], Field(max_length=512)]


def as_functions(tools: list[AnyTool] | None) -> list[dict[str, Any]] | None:
    """Tools as chat templates know them."""
    made = [{"type": "function", "function": tool.function.model_dump(exclude_none=True)} for tool in tools or ()]
    return made or None


# ---- which may be called ----


class NamedFunction(Options):
    name: ShortText


class NamedTool(Options):
    type: Literal["function"] = "function"
    function: NamedFunction

    @property
    def name(self) -> str:
        return self.function.name


class NamedCustomTool(Options):
    type: Literal["custom"]
    custom: NamedFunction

    @property
    def name(self) -> str:
        return self.custom.name


AnyName = Annotated[
    Annotated[NamedTool, Tag("function")] | Annotated[NamedCustomTool, Tag("custom")], Discriminator(kind_of)
]


class AllowedTools(Options):
    mode: Literal["auto", "required"]
    tools: Annotated[list[AnyName], Field(min_length=1, max_length=512)]


class AllowedChoice(Options):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[
        Annotated[NamedTool, Tag("function")]
        | Annotated[NamedCustomTool, Tag("custom")]
        | Annotated[AllowedChoice, Tag("allowed_tools")],
        Discriminator(kind_of),
    ]
)
