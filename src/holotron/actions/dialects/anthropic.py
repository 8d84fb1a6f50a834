"""Anthropic's `computer_*` tool: its inputs, points in pixels of the declared display.

Lost there and back: `element`; scroll amounts by rounding to whole turns of the wheel, of which one is 10% of the
viewport here; a selected option comes back as text with Enter; a point by pixel rounding; navigation goes by keys and
such keys come back as navigation; a scroll point in the very middle is left out. Answering is not an input of the
tool but the end of its turn, so `answer` and `infeasible` cannot be expressed.
"""

from __future__ import annotations

from typing import Any

from holotron.actions.action import (
    Action,
    ActionError,
    Click,
    DoubleClick,
    Drag,
    Hover,
    Press,
    Scroll,
    SwitchTab,
    Type,
    Wait,
)
from holotron.actions.dialects.fields import MIDDLE, Fields, Inexpressible, as_object, build, space_middle
from holotron.actions.dialects.sequences import expand, fold
from holotron.actions.keys import parse_keys, split_keys
from holotron.actions.space import Space

NAME = "Anthropic's computer tool"
PERCENT_PER_TURN = 10
_KEY_NAMES = {
    "Control": "ctrl",
    "Alt": "alt",
    "Shift": "shift",
    "Meta": "super",
    "Enter": "Return",
    "Backspace": "BackSpace",
    "PageUp": "Page_Up",
    "PageDown": "Page_Down",
    "ArrowUp": "Up",
    "ArrowDown": "Down",
    "ArrowLeft": "Left",
    "ArrowRight": "Right",
    "Space": "space",
    "CapsLock": "Caps_Lock",
    "NumLock": "Num_Lock",
    "ScrollLock": "Scroll_Lock",
    "PrintScreen": "Print",
    "ContextMenu": "Menu",
    "+": "plus",
    "-": "minus",
}
_CLICKS = {"left": "left_click", "right": "right_click", "middle": "middle_click"}


def to_anthropic(action: Action, space: Space) -> list[dict[str, Any]]:
    """The inputs that stand for an action, in order."""
    return [_one(part, space) for part in expand(action, shortcuts=True)]


def from_anthropic(inputs: list[dict[str, Any]], space: Space) -> list[Action]:
    """The actions in inputs that belong to one step."""
    if not isinstance(inputs, list):
        raise ActionError(f"{NAME}: inputs are a list, not {type(inputs).__name__}")
    return fold([action for each in inputs for action in _read(as_object(NAME, each), space)], shortcuts=True)


def _one(action: Action, space: Space) -> dict[str, Any]:
    match action:
        case Click():
            return {"action": _CLICKS[action.button], "coordinate": _point(action.x, action.y, space)}
        case DoubleClick():
            return {"action": "double_click", "coordinate": _point(action.x, action.y, space)}
        case Hover():
            return {"action": "mouse_move", "coordinate": _point(action.x, action.y, space)}
        case Drag():
            start, end = _point(action.x, action.y, space), _point(action.to_x, action.to_y, space)
            return {"action": "left_click_drag", "start_coordinate": start, "coordinate": end}
        case Type():
            return {"action": "type", "text": action.text}
        case Press():
            *modifiers, main = split_keys(action.keys)
            names = [*modifiers, main.lower() if modifiers and len(main) == 1 and main.isascii() else main]
            return {"action": "key", "text": "+".join(_KEY_NAMES.get(name, name) for name in names)}
        case Scroll():
            x, y = (action.x, action.y) if action.x is not None and action.y is not None else MIDDLE
            return {
                "action": "scroll",
                "coordinate": _point(x, y, space),
                "scroll_direction": action.direction,
                "scroll_amount": max(1, round(action.amount / PERCENT_PER_TURN)),
            }
        case Wait():
            return {"action": "wait", "duration": action.seconds} if action.seconds else {"action": "screenshot"}
        case SwitchTab():
            raise Inexpressible(f"going to tab {action.index}; keys reach tabs 0 to 7", NAME)
    raise Inexpressible(action.action, NAME)


def _point(x: int, y: int, space: Space) -> list[int]:
    return list(space.from_relative(x, y))


def _read(values: dict[str, Any], space: Space) -> list[Action]:
    kind = values.get("action")
    fields = Fields(NAME, str(kind)[:40], values)
    if kind in (*_CLICKS.values(), "double_click", "mouse_move", "left_click_drag", "scroll"):
        return [_read_pointing(str(kind), fields, space)]
    match kind:
        case "type":
            return [build("type", text=fields.text("text"))]
        case "key":
            # Several presses in a row are separated by blanks, as for xdotool.
            presses = fields.text("text").split() or [fields.text("text")]
            repeat = min(fields.whole("repeat", 1), 100)
            return [build("press", keys=keys, repeat=repeat) for keys in map(_read_keys, presses)]
        case "wait":
            return [build("wait", seconds=min(fields.number("duration", 1), 300))]
        case "screenshot" | "cursor_position":
            return [build("wait", seconds=0)]
        case "triple_click" | "hold_key" | "left_mouse_down" | "left_mouse_up" | "zoom":
            raise Inexpressible(str(kind), "an action")
    raise ActionError(f"{NAME} has no action {str(kind)[:40]!r}")


def _read_keys(text: str) -> str:
    try:
        return parse_keys(text)
    except ValueError as error:
        raise ActionError(f"{NAME} key: {error}") from None


def _read_pointing(kind: str, fields: Fields, space: Space) -> Action:
    if fields.has("text"):
        raise Inexpressible(f"{kind} with keys held down", "an action")
    if kind == "scroll":
        amount = max(1, min(fields.whole("scroll_amount", 5) * PERCENT_PER_TURN, 1000))
        point = fields.pair(space, "coordinate") if fields.has("coordinate") else space_middle(space)
        x, y = point if point != space_middle(space) else (None, None)
        return build("scroll", direction=fields.text("scroll_direction"), amount=amount, x=x, y=y)
    if not fields.has("coordinate"):
        raise Inexpressible(f"{kind} where the pointer happens to be", "an action")
    x, y = fields.pair(space, "coordinate")
    if kind == "left_click_drag":
        if not fields.has("start_coordinate"):
            raise Inexpressible("a drag from where the pointer happens to be", "an action")
        start_x, start_y = fields.pair(space, "start_coordinate")
        return build("drag", x=start_x, y=start_y, to_x=x, to_y=y)
    if kind in ("double_click", "mouse_move"):
        return build("hover" if kind == "mouse_move" else kind, x=x, y=y)
    return build("click", x=x, y=y, button=kind.removesuffix("_click"))
