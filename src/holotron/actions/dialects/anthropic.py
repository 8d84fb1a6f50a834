"""Anthropic's `computer_*` tool: its inputs, points in pixels of the declared display.

Lost there and back: `element`; scroll amounts by rounding to whole turns of the wheel, of which one is 10% of the
viewport here; a selected option comes back as text with Enter; a point by pixel rounding; navigation goes by keys and
such keys come back as navigation; a scroll point in the very middle is left out. Answering is not an input of the
tool but the end of its turn, so `answer` and `infeasible` cannot be expressed.
"""

from __future__ import annotations

from typing import Any

from holotron.actions import action as a
from holotron.actions.action import Action, ActionError
from holotron.actions.coordinates import Space
from holotron.actions.dialects.fields import (
    CLICKS,
    Fields,
    Inexpressible,
    as_objects,
    build,
    from_turns,
    inexpressible,
    known_place,
    off_middle,
    scroll_point,
    to_pair,
    to_turns,
)
from holotron.actions.dialects.sequences import expand, fold
from holotron.actions.keys import split_keys

NAME = "Anthropic's computer tool"
_KEY_NAMES = {
    "Control": "ctrl", "Alt": "alt", "Shift": "shift", "Meta": "super", "Enter": "Return", "Backspace": "BackSpace",
    "PageUp": "Page_Up", "PageDown": "Page_Down", "ArrowUp": "Up", "ArrowDown": "Down", "ArrowLeft": "Left",
    "ArrowRight": "Right", "Space": "space", "CapsLock": "Caps_Lock", "NumLock": "Num_Lock",
    "ScrollLock": "Scroll_Lock", "PrintScreen": "Print", "ContextMenu": "Menu", "+": "plus", "-": "minus",
}  # fmt: skip


def to_anthropic(action: Action, space: Space) -> list[dict[str, Any]]:
    """The inputs that stand for an action, in order."""
    return [_one(part, space) for part in expand(action, shortcuts=True)]


def from_anthropic(inputs: list[dict[str, Any]], space: Space) -> list[Action]:
    """The actions in inputs that belong to one step."""
    return fold([action for each in as_objects(NAME, inputs) for action in _read(each, space)], shortcuts=True)


def _one(action: Action, space: Space) -> dict[str, Any]:
    match action:
        case a.Click():
            return {"action": CLICKS[action.button], "coordinate": to_pair(action.x, action.y, space)}
        case a.DoubleClick():
            return {"action": "double_click", "coordinate": to_pair(action.x, action.y, space)}
        case a.Hover():
            return {"action": "mouse_move", "coordinate": to_pair(action.x, action.y, space)}
        case a.Drag():
            start, end = to_pair(action.x, action.y, space), to_pair(action.to_x, action.to_y, space)
            return {"action": "left_click_drag", "start_coordinate": start, "coordinate": end}
        case a.Type():
            return {"action": "type", "text": action.text}
        case a.Press():
            *modifiers, main = split_keys(action.keys)
            names = [*modifiers, main.lower() if modifiers and len(main) == 1 and main.isascii() else main]
            return {"action": "key", "text": "+".join(_KEY_NAMES.get(name, name) for name in names)}
        case a.Scroll():
            return {
                "action": "scroll",
                "coordinate": to_pair(*scroll_point(action), space),
                "scroll_direction": action.direction,
                "scroll_amount": to_turns(action),
            }
        case a.Wait():
            return {"action": "wait", "duration": action.seconds} if action.seconds else {"action": "screenshot"}
    raise inexpressible(action, NAME)


def _read(values: dict[str, Any], space: Space) -> list[Action]:
    kind = values.get("action")
    fields = Fields(NAME, kind, values, space)
    if kind in (*CLICKS.values(), "double_click", "mouse_move", "left_click_drag", "scroll"):
        return [_read_pointing(str(kind), fields)]
    match kind:
        case "type":
            return [build("type", text=fields.text("text"))]
        case "key":
            # Several presses in a row are separated by blanks, as for xdotool.
            presses = fields.text("text").split() or [fields.text("text")]
            repeat = min(fields.whole("repeat", 1), 100)
            return [build("press", keys=fields.keys(split_keys(keys)), repeat=repeat) for keys in presses]
        case "wait":
            return [build("wait", seconds=min(fields.number("duration", 1), 300))]
        case "screenshot" | "cursor_position":
            return [build("wait", seconds=0)]
        case "triple_click" | "hold_key" | "left_mouse_down" | "left_mouse_up" | "zoom":
            raise Inexpressible(kind, "an action")
    raise ActionError(f"{NAME} has no action {str(kind)[:40]!r}")


def _read_pointing(kind: str, fields: Fields) -> Action:
    if fields.has("text"):
        raise Inexpressible(f"{kind} with keys held down", "an action")
    at = fields.pair("coordinate") if fields.has("coordinate") else None
    if kind == "scroll":
        amount = from_turns(fields.whole("scroll_amount", 5))
        at = at and off_middle(at, fields.space)
        return build("scroll", at, direction=fields.text("scroll_direction"), amount=amount)
    at = known_place(at, kind)
    if kind == "left_click_drag":
        start = fields.pair("start_coordinate") if fields.has("start_coordinate") else None
        return build("drag", known_place(start, "a drag from"), at)
    if kind in ("double_click", "mouse_move"):
        return build("hover" if kind == "mouse_move" else kind, at)
    return build("click", at, button=kind.removesuffix("_click"))
