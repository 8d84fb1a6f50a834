"""What a policy may ask for: every action as JSON with the field `action`, points as 0–1000 of each side of the image.

The JSON is canonical: fixed order of keys, no blanks, defaults left out, so that a small model writes few tokens and
equal actions are equal texts.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from holotron.actions.schema import action_schema
from holotron.actions.types import (
    KINDS,
    MODELS,
    Action,
    Answer,
    Back,
    Button,
    Click,
    CloseTab,
    Direction,
    DoubleClick,
    Drag,
    Forward,
    Goto,
    Hover,
    Infeasible,
    NewTab,
    Press,
    Refresh,
    Scroll,
    Select,
    SwitchTab,
    Type,
    Wait,
)

__all__ = [
    "KINDS",
    "Action",
    "ActionError",
    "Answer",
    "Back",
    "Button",
    "Click",
    "CloseTab",
    "Direction",
    "DoubleClick",
    "Drag",
    "Forward",
    "Goto",
    "Hover",
    "Infeasible",
    "NewTab",
    "Press",
    "Refresh",
    "Scroll",
    "Select",
    "SwitchTab",
    "Type",
    "Wait",
    "action_schema",
    "describe",
    "find_action",
    "is_terminal",
    "load_json",
    "parse_action",
    "to_dict",
    "to_json",
]

MAX_JSON_CHARS = 100_000
MAX_SHOWN = 60

_ADAPTER: TypeAdapter[Action] = TypeAdapter(Annotated[Action, Field(discriminator="action")])


class ActionError(ValueError):
    """Not an action: the message names the field, its value and what it may be."""


def parse_action(source: str | dict[str, Any]) -> Action:
    """The action that a JSON text or an already parsed object stands for; anything else is an ActionError."""
    value = load_json(source) if isinstance(source, str) else source
    if not isinstance(value, dict):
        raise ActionError(f"an action is a JSON object with the field action, not {_shown(value)}")
    try:
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        raise ActionError(_explain(value, error)) from None
    except RecursionError:
        raise ActionError("the action is nested too deeply") from None


def load_json(text: str) -> Any:
    """A JSON value from a text nobody vouches for; ActionError if it is anything but plain, finite, shallow JSON."""
    if len(text) > MAX_JSON_CHARS:
        raise ActionError(f"the action has {len(text)} characters; {MAX_JSON_CHARS} are the most allowed")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ActionError("the action is nested too deeply") from None
    except ValueError as error:
        raise ActionError(f"not valid JSON: {str(error)[:200]}; the text is {_shown(text)}") from None


def find_action(text: str) -> Action:
    """The action in a text that says other things too: the last JSON object in it that has the field `action`."""
    found: dict[str, Any] | None = None
    position, attempts = text.find("{"), 0
    while position >= 0 and attempts < 1000 and len(text) <= MAX_JSON_CHARS:
        attempts += 1
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            found = value if "action" in value else found
        position = text.find("{", end)
    if found is None:
        raise ActionError(f"there is no JSON object with the field action in {_shown(text)}")
    inner = found["action"]
    return parse_action(inner if isinstance(inner, dict) else found)


def to_dict(action: Action) -> dict[str, Any]:
    """The canonical JSON object of an action: keys in order, defaults left out."""
    fields = action.model_dump(exclude_defaults=True, exclude={"action"})
    if isinstance(action, Wait) and action.seconds.is_integer():
        fields["seconds"] = int(action.seconds)
    return {"action": action.action, **fields}


def to_json(action: Action) -> str:
    """The canonical JSON text of an action."""
    return json.dumps(to_dict(action), ensure_ascii=False, separators=(",", ":"))


def is_terminal(action: Action) -> bool:
    """Whether the episode ends with it."""
    return isinstance(action, Answer | Infeasible)


def describe(action: Action) -> str:
    """What the action does, in a few words for a person."""
    match action:
        case Click() | DoubleClick() | Hover():
            verb = {"click": "Click", "double_click": "Double-click", "hover": "Point at"}[action.action]
            if isinstance(action, Click) and action.button != "left":
                verb = f"{action.button.capitalize()}-click"
            return f"{verb} {_where(action)}"
        case Drag():
            return f"Drag from ({action.x}, {action.y}) to ({action.to_x}, {action.to_y})"
        case Type():
            place = f" into {_where(action)}" if action.x is not None or action.element else ""
            ways = " after clearing it" * action.clear + " and press Enter" * action.enter
            return f"Type {_shown(action.text)}{place}{ways}"
        case Press():
            return f"Press {action.keys}" + (f" {action.repeat} times" if action.repeat > 1 else "")
        case Scroll():
            place = f" at ({action.x}, {action.y})" if action.x is not None else ""
            return f"Scroll {action.direction} by {action.amount}%{place}"
        case Select():
            return f"Choose {_shown(action.option)} at ({action.x}, {action.y})"
        case Goto():
            return f"Go to {action.url[:200]}"
        case Back() | Forward():
            return f"Go {action.action}"
        case Refresh():
            return "Load the page again"
        case Wait():
            return f"Wait {action.seconds:g} s"
        case NewTab():
            return "Open a new tab" + (f" at {action.url[:200]}" if action.url else "")
        case SwitchTab():
            return f"Go to tab {action.index}"
        case CloseTab():
            return "Close this tab" if action.index is None else f"Close tab {action.index}"
        case Answer():
            return f"Answer {_shown(action.text)}"
        case Infeasible():
            return f"Give up: {_shown(action.reason)}"


def _where(action: Click | DoubleClick | Hover | Type) -> str:
    point = f"({action.x}, {action.y})" if action.x is not None else ""
    return f"{_shown(action.element)} {point}".strip() if action.element else point


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key is given twice")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)


# ---- errors ----


def _explain(value: dict[Any, Any], error: ValidationError) -> str:
    kind = value.get("action")
    if not isinstance(kind, str) or kind not in MODELS:
        what = f"action is {_shown(kind)}" if "action" in value else "the field action is missing"
        return f"{what}; it must be one of {', '.join(KINDS)}"
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = [str(part)[:MAX_SHOWN] for part in first["loc"] if part != kind][:1]
    reason = str(first["msg"]).removeprefix("Value error, ")
    if not place:
        return f"{kind}: {reason}"
    name = place[0]
    if name not in MODELS[kind].model_fields:
        return f"{kind} has no field {_shown(name)}; it has {', '.join(MODELS[kind].model_fields)}"
    if first["type"] == "missing":
        return f"{kind}.{name} is missing; it must be {_allowed(kind, name)}"
    if first["type"] == "value_error":
        return f"{kind}.{name} is {_shown(value.get(name))}: {reason}"
    return f"{kind}.{name} is {_shown(value.get(name))}; it must be {_allowed(kind, name)}"


@cache
def _allowed(kind: str, name: str) -> str:
    """What a field may be, in words, from the schema of its model."""
    rule = MODELS[kind].model_json_schema()["properties"][name]
    rule = next((choice for choice in rule.get("anyOf", [rule]) if choice.get("type") != "null"), rule)
    if "enum" in rule:
        return f"one of {', '.join(rule['enum'])}"
    if rule["type"] == "boolean":
        return "true or false"
    if rule["type"] == "string":
        blanks = " without blanks" if "pattern" in rule else ""
        return f"a text{blanks} of at most {rule['maxLength']} characters"
    number = "a whole number" if rule["type"] == "integer" else "a number"
    return f"{number} from {rule['minimum']:g} to {rule['maximum']:g}"


def _shown(value: object) -> str:
    """A value in an error message: short, and safe to print."""
    if isinstance(value, bool | float | None):
        return json.dumps(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else "a huge number"
    if isinstance(value, str):
        short = value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 1] + "…"
        return json.dumps(short, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__
