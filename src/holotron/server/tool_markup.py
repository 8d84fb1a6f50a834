"""The blocks in which models write tool calls: where one ends, letter by letter, and the calls in a whole one."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

Tool = Mapping[str, Any]
Schema = Mapping[str, Any]
# Takes a block letter by letter, after its opening tag; returns at its end and raises Broken where it cannot be one.
Scan = Generator[None, str, None]

SPACE = " \t\r\n"
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", list: "array"}
ALL_TYPES = frozenset({*_TYPES.values(), "object"})

_JSON_LETTERS = frozenset(SPACE + '{}[]:,"0123456789+-.eEtrufalsn')
_DECODER = json.JSONDecoder(strict=False)  # models write line breaks into strings as they are
_FUNCTION = re.compile(r"\s*<function=([^<>\n]*)>")
_PARAMETER = re.compile(r"<parameter=([^<>\n]*)>(.*?)</parameter>", re.DOTALL)
# How templates write Python's values where they do not use JSON.
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True)
class ToolCall:
    """One call; the arguments are the text of a JSON object, as the model wrote it where it can stay so."""

    name: str
    arguments: str
    input: str | None = None  # of a custom tool


class Broken(Exception):
    """The letter just taken cannot follow: this is no call."""


def scan_json(closing: str) -> Scan:
    if (yield from _skip_space()) not in ("{", "["):
        raise Broken
    depth = 1
    while depth:
        letter = yield
        if letter == '"':
            while (letter := (yield)) != '"':
                if letter == "\\":
                    yield
        elif letter not in _JSON_LETTERS:
            raise Broken
        else:
            depth += (letter in "{[") - (letter in "}]")
    yield from _scan_tag(closing)


def scan_xml(closing: str) -> Scan:
    tag = yield from _scan_tag("<function=")
    while tag != "</function>":
        while (letter := (yield)) != ">":
            if letter in "<\n":
                raise Broken
        if tag == "<parameter=":
            yield from _scan_until("</parameter>")
        tag = yield from _scan_tag("<parameter=", "</function>")
    yield from _scan_tag(closing)


def _skip_space() -> Generator[None, str, str]:
    while (letter := (yield)) in SPACE:
        pass
    return letter


def _scan_tag(*tags: str) -> Generator[None, str, str]:
    """One of the tags, after whitespace."""
    text = yield from _skip_space()
    while text not in tags:
        if not any(tag.startswith(text) for tag in tags):
            raise Broken
        text += yield
    return text


def _scan_until(tag: str) -> Scan:
    matched = 0
    while matched < len(tag):
        letter = yield
        matched = matched + 1 if letter == tag[matched] else int(letter == "<")


def read_json_calls(body: str, tools: Mapping[str, Tool]) -> list[ToolCall]:
    """The calls in a JSON list, or the one that is not in a list."""
    body = body.strip(SPACE)
    if body[0] == "{":
        body = f"[{body}]"
    calls: list[ToolCall] = []
    at = _after(body, 0, "[")
    while body[at] != "]" or calls:
        call, at = _read_json_call(body, at, tools)
        calls.append(call)
        at = _after_space(body, at)
        if body[at] == "]":
            break
        at = _after(body, at, ",")
    return calls if at + 1 == len(body) else []


def _read_json_call(text: str, at: int, tools: Mapping[str, Tool]) -> tuple[ToolCall, int]:
    """The call that starts here, and where it ends."""
    members: dict[str, tuple[Any, str]] = {}
    at = _after(text, at, "{")
    while text[at] != "}":
        if members:
            at = _after(text, at, ",")
        key, at = _DECODER.raw_decode(text, at)
        if not isinstance(key, str):
            raise ValueError(f"the key {key} is not a text")
        start = _after(text, at, ":")
        value, at = _DECODER.raw_decode(text, start)
        members[key] = value, text[start:at]
        at = _after_space(text, at)
    name, (arguments, written) = members["name"][0], members.get("arguments", (None, ""))
    if isinstance(arguments, str):  # some models write them as a text in the text
        arguments, written = _DECODER.decode(arguments), arguments
    if arguments is None:
        arguments, written = {}, "{}"
    if not isinstance(name, str) or name not in tools or not isinstance(arguments, dict):
        raise ValueError(f"{name} is not a known tool, or its arguments are not an object")
    return ToolCall(name, _as_json(arguments, written)), at + 1


def read_xml_calls(body: str, tools: Mapping[str, Tool]) -> list[ToolCall]:
    """The one call in a block, which `scan_xml` has found sound."""
    function = _FUNCTION.match(body)
    if function is None or function[1] not in tools:
        raise ValueError("not a known tool")
    schema = parameters_of(tools[function[1]])
    members = {}
    for key, text in _PARAMETER.findall(body, function.end()):
        text = text.removeprefix("\n").removesuffix("\n")
        members[key] = _read_parameter(text, schema["properties"].get(key, {}), schema)
    arguments = ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {value}" for key, value in members.items())
    return [ToolCall(function[1], "{" + arguments + "}")]


def _read_parameter(text: str, schema: Schema, root: Schema) -> str:
    """The JSON of a parameter: text stays text where the schema says so, or where it is allowed and all it can be."""
    types = types_of(schema, root)
    word = text.strip()
    word = _PYTHON_WORDS.get(word, word)
    if is_text(types):
        return "null" if "null" in types and word == "null" else json.dumps(text, ensure_ascii=False)
    try:
        value = json.loads(word, strict=False)
        if "string" not in types or type_of(value) in types:
            return _as_json(value, word)
    except (ValueError, RecursionError):
        if "string" not in types:
            raise
    return json.dumps(text, ensure_ascii=False)


def parameters_of(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments, with its properties; a tool without one takes no arguments."""
    schema = tool["function"].get("parameters")
    if schema is None:
        schema = {"additionalProperties": False}
    return {"type": "object", "properties": {}, **schema}


def types_of(schema: object, root: Schema, depth: int = 16) -> frozenset[str]:
    """The JSON types that a value under the schema may have: all where it cannot be told."""
    if not isinstance(schema, Mapping) or depth == 0:
        return ALL_TYPES
    types = ALL_TYPES
    if "type" in schema:
        declared = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        types = frozenset(type_ for type_ in ALL_TYPES if type_ in declared)
        types |= {"integer"} if "number" in types else set()
    if "const" in schema:
        types &= {type_of(schema["const"])}
    if isinstance(schema.get("enum"), list):
        types &= {type_of(value) for value in schema["enum"]}
    for choice in ("anyOf", "oneOf"):
        if isinstance(schema.get(choice), list):
            types &= frozenset().union(*(types_of(option, root, depth - 1) for option in schema[choice]))
    for part in parts_of(schema, root):
        types &= types_of(part, root, depth - 1)
    return types


def parts_of(schema: Schema, root: Schema) -> list[object]:
    """The schemas that a value must satisfy besides: those of allOf, and the one that is referred to."""
    parts = list(schema["allOf"]) if isinstance(schema.get("allOf"), list) else []
    return [*parts, _resolve(schema["$ref"], root)] if "$ref" in schema else parts


def is_text(types: frozenset[str]) -> bool:
    """Whether a parameter of these types is written as plain text rather than as JSON."""
    return types - {"null"} == {"string"}


def _resolve(reference: object, root: Schema) -> object:
    """What a reference such as "#/$defs/name" points to, or nothing."""
    place: object = root
    for step in str(reference).removeprefix("#/").split("/"):
        place = place.get(step) if isinstance(place, Mapping) else None
    return place


def type_of(value: object) -> str:
    """The JSON type of a value."""
    return _TYPES.get(type(value), "object")


def _as_json(value: object, written: str) -> str:
    """The text as it was written, if it is strict JSON."""
    try:
        json.loads(written)
    except ValueError:
        return json.dumps(value, allow_nan=False)
    return written


def _after(text: str, at: int, letter: str) -> int:
    """The place after that letter, with whitespace around it."""
    at = _after_space(text, at)
    if text[at] != letter:
        raise ValueError(f"{letter} was expected, not {text[at]}")
    return _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    while text[at] in SPACE:
        at += 1
    return at
