"""Tools that make no sense are refused, and which field is wrong is said."""

from __future__ import annotations

from typing import Any

import pytest

from holotron.server.tools import check_tools

from .toolbox import CLICK, DONE, TOOLS, tool


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ({}, "tools must be a list"),
        ([CLICK, "x"], r"tools\[1\] must be an object"),
        ([{"type": "web"}], r"tools\[0\]\.type .*'web'"),
        ([{"type": "function"}], r"tools\[0\]\.function must be an object, not missing"),
        ([CLICK, tool("a b")], r"tools\[1\]\.function\.name .*'a b'"),
        ([tool("")], r"tools\[0\]\.function\.name"),
        ([tool("a\n")], r"tools\[0\]\.function\.name"),
        ([tool("a" * 65)], r"tools\[0\]\.function\.name"),
        ([{"type": "function", "function": {}}], r"tools\[0\]\.function\.name .*None"),
        ([CLICK, DONE, CLICK], r"tools\[2\]\.function\.name is 'click', the name of tools\[0\]"),
        ([{"type": "function", "function": {"name": "a", "description": 1}}], r"tools\[0\]\.function\.description"),
        ([{"type": "function", "function": {"name": "a", "parameters": []}}], r"tools\[0\]\.function\.parameters must"),
        ([tool("a", {}, type="array")], r"tools\[0\]\.function\.parameters\.type .*'array'"),
        ([tool("a", {"x": 1})], r"tools\[0\]\.function\.parameters\.properties\['x'\]"),
        ([tool("a", {}, properties=[])], r"tools\[0\]\.function\.parameters\.properties must"),
        ([tool("a", {}, required="x")], r"tools\[0\]\.function\.parameters\.required"),
    ],
)
def test_a_wrong_tool_is_named_with_its_field(tools: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_tools(tools)


def test_right_tools_pass() -> None:
    check_tools(TOOLS)
    check_tools([])
    check_tools([{"type": "function", "function": {"name": "a" * 64, "description": None, "parameters": {}}}])
