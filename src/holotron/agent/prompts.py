"""What the localizer and the validator are told, and the form their answers have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holotron.actions.action import ActionError, load_json
from holotron.agent.formats.base import json_part

# ---- localizer ----

POINT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {axis: {"type": "integer", "minimum": 0, "maximum": 1000} for axis in ("x", "y")},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def localization_prompt(element: str) -> str:
    return (
        "Where in the screenshot is this element? Answer with JSON, 0 to 1000 of its width and height: "
        f'{{"x":…,"y":…}}.\nElement: {element}'
    )


def parse_point(text: str) -> tuple[int, int]:
    """A point of 0 to 1000; ActionError if the answer is none."""
    value = load_json(json_part(text))
    if isinstance(value, dict):
        x, y = value.get("x"), value.get("y")
        if isinstance(x, int) and isinstance(y, int) and 0 <= x <= 1000 and 0 <= y <= 1000:
            return x, y
    raise ActionError(f'a point is {{"x":…,"y":…}} with numbers from 0 to 1000, not {text[:80]!r}')


# ---- validator ----

VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"explanation": {"type": "string", "maxLength": 1000}, "success": {"type": "boolean"}},
    "required": ["explanation", "success"],
    "additionalProperties": False,
}


def validation_prompt(task: str, answer: str) -> str:
    return (
        "Somebody was given a task on a computer and says it is done. The screenshots are the last ones, the latest at "
        "the end. Judge whether the task is done and the answer right. Answer with JSON: "
        f'{{"explanation":"…","success":true or false}}.\nTask: {task}\nAnswer: {answer or "(none)"}'
    )


def parse_verdict(text: str) -> tuple[bool, str]:
    value: Mapping[str, Any] | Any = load_json(json_part(text))
    if isinstance(value, dict) and isinstance(value.get("success"), bool):
        return value["success"], str(value.get("explanation", ""))
    raise ActionError(f"a verdict has the field 'success', true or false, not {json.dumps(text)[:80]}")
