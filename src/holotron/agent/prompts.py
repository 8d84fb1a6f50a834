"""What the policy, the localizer and the validator are told, and the form their answers have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holotron.actions.action import KINDS, Action, ActionError, action_schema, load_json, parse_action

BROWSER_KINDS = tuple(KINDS)
# One page, no address bar: what the tasks of MiniWoB++ can be solved with.
WIDGET_KINDS = ("click", "double_click", "hover", "drag", "type", "press", "scroll", "select", "wait")

_USAGE = {
    "click": '{"action":"click","x":…,"y":…} (also "button":"right")',
    "double_click": '{"action":"double_click","x":…,"y":…}',
    "hover": '{"action":"hover","x":…,"y":…}',
    "drag": '{"action":"drag","x":…,"y":…,"to_x":…,"to_y":…}',
    "type": '{"action":"type","text":"…"} (with "x" and "y" to click there first, "clear":true, "enter":true)',
    "press": '{"action":"press","keys":"Enter"} (or "Control+A", "ArrowDown"; with "repeat")',
    "scroll": '{"action":"scroll","direction":"down"} (with "amount" in percent of the view, "x" and "y")',
    "select": '{"action":"select","x":…,"y":…,"option":"…"} (a drop-down list)',
    "goto": '{"action":"goto","url":"…"}',
    "back": '{"action":"back"}',
    "forward": '{"action":"forward"}',
    "refresh": '{"action":"refresh"}',
    "wait": '{"action":"wait","seconds":…}',
    "new_tab": '{"action":"new_tab"}',
    "switch_tab": '{"action":"switch_tab","index":…}',
    "close_tab": '{"action":"close_tab"}',
    "answer": '{"action":"answer","text":"…"} (the task is done; the text is what was asked for, or empty)',
    "infeasible": '{"action":"infeasible","reason":"…"} (the task cannot be done)',
}


@dataclass(frozen=True)
class NavigationForm:
    """The form of a step. With `reasons`, a note that survives dropped screenshots and a thought come before it.

    A terse policy is told the task once and then shown nothing but screens: small models are trained so, and every
    word they need not read is capacity and time.
    """

    kinds: tuple[str, ...] = BROWSER_KINDS
    reasons: bool = True
    terse: bool = False

    def __post_init__(self) -> None:
        if self.terse and self.reasons:
            raise ValueError("a terse policy gives no reasons; pass reasons=False")

    def system(self) -> str:
        lines = [
            "You use a computer for somebody. At each step you see a screenshot and choose one action.",
            "Points are whole numbers from 0 to 1000 of the screenshot's width (x) and height (y).",
            "Actions:",
            *(f"- {_USAGE[kind]}" for kind in self.kinds),
        ]
        if self.reasons:
            lines.append(
                'Answer with JSON: {"note":"what to remember of this screenshot","thought":"what to do and why",'
                '"action":{…}}. Old screenshots are taken away; notes stay.'
            )
        else:
            lines.append("Answer with the JSON of the action alone.")
        return "\n".join(lines)

    def schema(self, kinds: Iterable[str] | None = None) -> dict[str, Any]:
        """The JSON schema of an answer, of all kinds of actions or of some."""
        action = action_schema(self.kinds if kinds is None else kinds)
        if not self.reasons:
            return action
        texts = {"note": {"type": "string", "maxLength": 500}, "thought": {"type": "string", "maxLength": 1000}}
        properties = texts | {"action": action}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def parse(self, text: str) -> ParsedAnswer:
        """What the policy asks for; ActionError if that cannot be understood."""
        value = load_json(_json_part(text))
        if not isinstance(value, dict):
            raise ActionError(f"an answer is a JSON object, not {text[:80]!r}")
        inner = value.get("action")
        if isinstance(inner, str):  # the bare action, whoever was asked for more
            return ParsedAnswer(parse_action(value))
        if not isinstance(inner, dict):
            raise ActionError("the answer has no action; it must be an object with the field 'action'")
        note, thought = value.get("note", ""), value.get("thought", "")
        return ParsedAnswer(
            parse_action(inner), note if isinstance(note, str) else "", thought if isinstance(thought, str) else ""
        )


@dataclass(frozen=True)
class ParsedAnswer:
    action: Action
    note: str = ""
    thought: str = ""


def _json_part(text: str) -> str:
    """The text from its first brace to its last: models wrap JSON in fences and words."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


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
    value = load_json(_json_part(text))
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
    value: Mapping[str, Any] | Any = load_json(_json_part(text))
    if isinstance(value, dict) and isinstance(value.get("success"), bool):
        return value["success"], str(value.get("explanation", ""))
    raise ActionError(f"a verdict has the field 'success', true or false, not {json.dumps(text)[:80]}")
