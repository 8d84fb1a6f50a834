"""Tools that make no sense are refused, and which field is wrong is said."""

from __future__ import annotations

from typing import Any

import pytest

from holotron.server.tools import check_tools

from .toolbox import CLICK, DONE, TOOLS, tool


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([CLICK, tool("a b")], r"tools\[1\]\.function\.name .*'a b'"),
        ([tool("")], r"tools\[0\]\.function\.name"),
        ([tool("a\n")], r"tools\[0\]\.function\.name"),
        ([tool("a" * 65)], r"tools\[0\]\.function\.name"),
        ([CLICK, DONE, CLICK], r"tools\[2\]\.function\.name is 'click', the name of tools\[0\]"),
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
