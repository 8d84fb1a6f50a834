"""Grammars that force a tool call: the dialect's markup around arguments that satisfy the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from holotron.engine.grammar import Grammar
from holotron.server.json_lark import lark_in_json
from holotron.server.tool_markup import Schema, Tool, is_text, parameters_of, parts_of, types_of
from holotron.server.tool_schemas import INPUT
from holotron.server.tools import ToolDialect

# The spacing of json.dumps, in which templates write earlier calls: what is forced reads as the model learned it.
SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
VALUE_END = "\n</parameter>\n"
FREE_TEXT: Schema = {}  # in place of a schema: no form

# What relates parameters to each other; they are written one by one, so that it could not be kept.
_RELATIONS = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "minProperties")
_KEY = re.compile(r"[^<>\n]+")


def call_grammar(
    dialect: ToolDialect,
    tools: Sequence[Tool],
    names: Set[str] | None,
    parallel: bool,
    token_ids: Mapping[str, int] | None = None,
    otherwise: Schema | None = None,
    larks: Mapping[str, str | None] | None = None,
) -> Grammar:
    """The grammar of one call of a tool of those names or, without names, of any; with `parallel`, of one or more.

    With `otherwise`, a JSON text of that schema will do instead of calls; with FREE_TEXT, any text with or without
    calls after it. `larks` are the Lark grammars of the inputs of custom tools.

    `token_ids` are the vocabulary's own tokens for tags, as in `Tokenizer.markup`: where it has one for the opening
    or closing tag, models expect it, and the text of the tag would be something else to them.
    """
    known = [tool["function"]["name"] for tool in tools]
    if unknown := sorted((names or set()) - set(known)):
        raise ValueError(f"there is no tool {unknown[0]!r} to call; the tools are: {', '.join(known)}")
    chosen = [tool for tool in tools if names is None or tool["function"]["name"] in names]
    if not chosen:
        raise ValueError("no tools to call")
    opening, closing = (_tag(tag, token_ids or {}) for tag in (dialect.opening, dialect.closing))
    rules = {"start": f"{opening} calls"}
    if dialect.name == "nemotron":
        rules["calls"] = f'"[" call {_repeated(", ", "call", parallel)} "]" {closing}'
    else:
        line = _text("\n")
        rules["calls"] = f"block {_repeated(chr(10), f'{opening} block', parallel)}"
        rules["block"] = f"{line} call {line} {closing}"
    if otherwise is FREE_TEXT:
        before = f"/(?s:.*)/ & ~/(?s:.*){_in_slashes(dialect.opening)}(?s:.*)/"
        rules["start"] = f"TEXT? ({opening} calls)?" if dialect.opening in (token_ids or {}) else "TEXT? | TAG calls"
        rules["TEXT"] = f"{before} & /(?s:.+)/"
        rules["TAG"] = f"({before}) {_text(dialect.opening)}"
    elif otherwise is not None:
        rules["start"] += " | answer"
        rules["answer"] = f"%json {json.dumps({**otherwise, 'x-guidance': {'whitespace_flexible': False}})}"
    rules["call"] = " | ".join(f"tool{number}" for number in range(len(chosen)))
    write = _xml_rules if dialect.name == "xml" else _json_rules
    inner = []
    for number, tool in enumerate(chosen):
        if (lark := (larks or {}).get(name := tool["function"]["name"])) is None:
            rules.update(write(f"tool{number}", tool))
            continue
        before, after = f'{{"name": {json.dumps(name)}, "arguments": {{"{INPUT}": "', '"}}'
        if dialect.name == "xml":
            before, after = f"<function={name}>\n<parameter={INPUT}>\n", f"{VALUE_END}</function>"
        inner.append((f"input{number}", lark if dialect.name == "xml" else lark_in_json(lark)))
        rules[f"tool{number}"] = f"{_text(before)} @input{number} {_text(after)}"
    return Grammar("lark", "".join(f"{rule}: {body}\n" for rule, body in rules.items()), inner=tuple(inner))


def _json_rules(rule: str, tool: Tool) -> Iterator[tuple[str, str]]:
    head = f'{{"name": {json.dumps(tool["function"]["name"])}, "arguments": '
    yield rule, f'{_text(head)} {rule}_arguments "}}"'
    yield f"{rule}_arguments", _json(_closed(parameters_of(tool)), {})


def _xml_rules(rule: str, tool: Tool) -> Iterator[tuple[str, str]]:
    schema = parameters_of(tool)
    name = tool["function"]["name"]
    if relations := [word for word in _RELATIONS if word in schema]:
        raise ValueError(
            f"the parameters of the tool {name!r} use {relations[0]!r}, which this model's calls cannot keep"
        )
    required = list(schema.get("required", []))
    properties = {**schema["properties"], **{key: {} for key in required if key not in schema["properties"]}}
    parts = [_text(f"<function={name}>\n")]
    for number, (key, value) in enumerate(properties.items()):
        part = f"{rule}_{number}"
        if not _KEY.fullmatch(key):
            if key in required:
                raise ValueError(f"the parameter {key[:80]!r} of the tool {name!r} has a name that calls cannot carry")
            continue
        parts.append(part if key in required else f"{part}?")
        types = types_of(value, schema)
        if is_text(types):
            # One terminal up to the closing tag: it alone tells where a text ends.
            yield part, f"{_text(f'<parameter={key}>' + chr(10))} {part.upper()}"
            yield part.upper(), _plain_text(value, schema, f"{name!r} for {key!r}")
        else:
            yield part, f"{_text(f'<parameter={key}>' + chr(10))} {part}_value {_text(VALUE_END)}"
            yield f"{part}_value", _json(value, schema)
    yield rule, " ".join([*parts, '"</function>"'])


def _plain_text(schema: Any, root: Schema, what: str) -> str:
    """A terminal for the texts of a schema and the end of a parameter."""
    options = [option for branch in _branches(schema, root, 16) for option in _text_options(branch)]
    if not options:
        raise ValueError(f"no text can be given to the tool {what}")
    return f"({' | '.join(options)}) {_text(VALUE_END)}"


def _branches(schema: Any, root: Schema, depth: int) -> Iterator[dict[str, Any]]:
    """The schema without choices and references: one for each way to a text."""
    if not isinstance(schema, Mapping) or depth == 0 or "string" not in types_of(schema, root):
        return
    rest = dict(schema)
    for choice in ("anyOf", "oneOf"):
        options = rest.pop(choice, None)
        if isinstance(options, list):
            for option in options:
                if isinstance(option, Mapping):
                    yield from _branches({**rest, **option}, root, depth - 1)
            return
    parts = parts_of(rest, root)
    if not parts:
        yield rest
        return
    rest = {key: value for key, value in rest.items() if key not in ("allOf", "$ref")}
    for part in parts:
        rest.update(part if isinstance(part, Mapping) else {})
    yield from _branches(rest, root, depth - 1)


def _text_options(schema: Mapping[str, Any]) -> Iterator[str]:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        for value in values:
            if isinstance(value, str) and VALUE_END.strip() not in value:
                yield _text(value)
        return
    shortest, longest = (schema[key] if isinstance(schema.get(key), int) else "" for key in ("minLength", "maxLength"))
    parts = [f"/(?s:.{{{shortest or 0},{longest}}})/"]
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        # A pattern may match anywhere, save where it is anchored.
        before = "" if pattern.startswith("^") else "(?s:.*)"
        after = "" if re.search(r"(?<!\\)(\\\\)*\$\Z", pattern) else "(?s:.*)"
        inner = pattern.removeprefix("^") if after else pattern.removeprefix("^")[:-1]
        parts.append(f"/{before}({_in_slashes(inner)}){after}/")
    parts.append(r"~/(?s:.*)<\/parameter>(?s:.*)/")
    yield f"({' & '.join(parts)})"


def _in_slashes(pattern: str) -> str:
    escaped = re.sub(r"\\.|/", lambda match: match[0] if len(match[0]) == 2 else r"\/", pattern, flags=re.DOTALL)
    return escaped.replace("\n", r"\n")


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without undeclared parameters, where nothing speaks of further ones."""
    opens = {"additionalProperties", "patternProperties", "unevaluatedProperties", *_RELATIONS}
    return schema if not schema["properties"] or opens & set(schema) else {**schema, "additionalProperties": False}


def _json(schema: Any, root: Schema) -> str:
    if schema is True or schema is False:
        schema = {} if schema else {"not": {}}
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return f"%json {json.dumps({**definitions, **schema, 'x-guidance': SPACING})}"


def _tag(tag: str, token_ids: Mapping[str, int]) -> str:
    return f"<[{token_ids[tag]}]>" if tag in token_ids else _text(tag)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _repeated(separator: str, rule: str, parallel: bool) -> str:
    return f"({_text(separator)} {rule})*" if parallel else ""
