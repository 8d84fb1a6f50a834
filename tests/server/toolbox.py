"""Tools, calls of them as models write them, and what is read of those."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holotron.server.tool_markup import ToolCall
from holotron.server.tools import HERMES, NEMOTRON, XML, ToolDialect, ToolSplitter


def tool(name: str, properties: dict[str, Any] | None = None, /, *required: str, **more: Any) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name, "description": f"Does {name}."}
    if properties is not None:
        function["parameters"] = {"type": "object", "properties": properties, "required": list(required), **more}
    return {"type": "function", "function": function}


CLICK = tool("click", {"x": {"type": "integer", "minimum": 0, "maximum": 99}, "y": {"type": "integer"}}, "x", "y")
TYPE = tool(
    "type.text",
    {
        "text": {"type": "string", "maxLength": 12},
        "key": {"enum": ["Enter", "Tab", 'a"b\n']},
        "note": {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 9}, {"type": "null"}]},
        "delay": {"type": "number"},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "any": {},
    },
    "text",
)
DONE = tool("done")
TOOLS = [CLICK, TYPE, DONE]


def write(dialect: ToolDialect, *calls: tuple[str, dict[str, Any]]) -> str:
    """The calls as a model of the dialect writes them."""
    texts = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    if dialect is NEMOTRON:
        return f"<TOOLCALL>[{', '.join(texts)}]</TOOLCALL>"
    if dialect is XML:
        texts = []
        for name, arguments in calls:
            values = [
                f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>\n"
                for key, value in arguments.items()
            ]
            texts.append(f"<function={name}>\n{''.join(values)}</function>")
    return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts)


def split(dialect: ToolDialect, text: str) -> tuple[str, list[ToolCall]]:
    """The content and the calls of a whole text."""
    return ToolSplitter(dialect, TOOLS).push(text, last=True)


def read(dialect: ToolDialect, text: str, tools: list[dict[str, Any]] = TOOLS) -> tuple[str, list[tuple[str, Any]]]:
    content, calls = ToolSplitter(dialect, tools).push(text, last=True)
    return content, [(call.name, json.loads(call.arguments)) for call in calls]


DIALECTS = (NEMOTRON, XML, HERMES)
everywhere = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
