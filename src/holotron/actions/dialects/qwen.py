"""Qwen-VL's `computer_use` tool: its arguments. Points are in 0–1000 (Qwen3-VL) or pixels of the image (Qwen2.5-VL).

Lost there and back: `element`; a selected option comes back as text with Enter; a point by pixel rounding; the amount
of a scroll by rounding to its pixels; navigation goes by keys and such keys come back as navigation; a scroll point in
the very middle is left out; the reason of the infeasible (`terminate` with `failure`). A triple click is read as a
double one, as the tool itself says.
"""

from __future__ import annotations

from typing import Any

from holotron.actions import action as a
from holotron.actions.action import Action, ActionError
from holotron.actions.coordinates import SCALE, Space
from holotron.actions.dialects.fields import (
    CLICKS,
    Fields,
    Point,
    as_objects,
    build,
    from_scroll_pixels,
    inexpressible,
    known_place,
    lower_names,
    off_middle,
    to_pair,
    to_scroll_pixels,
)
from holotron.actions.dialects.sequences import expand, fold

NAME = "Qwen's computer_use"


def to_qwen(action: Action, space: Space) -> list[dict[str, Any]]:
    """The arguments of the calls that stand for an action, in order."""
    if isinstance(action, a.Press):
        return [_one(action, space)] * action.repeat
    if isinstance(action, a.Drag):
        return _drag(action, space)
    return [_one(part, space) for part in expand(action, shortcuts=True)]


def from_qwen(calls: list[dict[str, Any]], space: Space, pointer: Point | None = None) -> list[Action]:
    """The actions in the arguments of calls that belong to one step. pointer: where the last step left it, 0–1000."""
    row: list[Action] = []
    for call in as_objects(NAME, calls):
        fields = Fields(NAME, call.get("action"), call, space)
        if call.get("action") == "left_click_drag":
            start = known_place(pointer, "a drag from")
            if row and isinstance(row[-1], a.Hover):
                row.pop()
            row.append(build("drag", start, fields.pair("coordinate")))
        else:
            row.append(_read(call, fields))
        pointer = fields.pair("coordinate") if fields.has("coordinate") else pointer
    return fold(row, shortcuts=True)


def _drag(action: a.Drag, space: Space) -> list[dict[str, Any]]:
    start, end = to_pair(action.x, action.y, space), to_pair(action.to_x, action.to_y, space)
    return [{"action": "mouse_move", "coordinate": start}, {"action": "left_click_drag", "coordinate": end}]


def _one(action: Action, space: Space) -> dict[str, Any]:
    match action:
        case a.Click():
            return {"action": CLICKS[action.button], "coordinate": to_pair(action.x, action.y, space)}
        case a.DoubleClick() | a.Hover():
            kind = "mouse_move" if isinstance(action, a.Hover) else "double_click"
            return {"action": kind, "coordinate": to_pair(action.x, action.y, space)}
        case a.Type():
            return {"action": "type", "text": action.text}
        case a.Press():
            return {"action": "key", "keys": lower_names(action.keys, meta="win")}
        case a.Scroll():
            right, down = to_scroll_pixels(action, _grid(space))
            at = {} if action.x is None or action.y is None else {"coordinate": to_pair(action.x, action.y, space)}
            return {"action": "hscroll" if right else "scroll", **at, "pixels": -(right or down)}
        case a.Wait():
            return {"action": "wait", "time": action.seconds}
        case a.Answer():
            return {"action": "answer", "text": action.text}
        case a.Infeasible():
            return {"action": "terminate", "status": "failure"}
    raise inexpressible(action, NAME)


def _read(call: dict[str, Any], fields: Fields) -> Action:
    kind = call.get("action")
    if kind in (*CLICKS.values(), "double_click", "triple_click", "mouse_move"):
        place = known_place(fields.pair("coordinate") if fields.has("coordinate") else None, str(kind))
        if kind in CLICKS.values():
            return build("click", place, button=str(kind).removesuffix("_click"))
        return build("hover" if kind == "mouse_move" else "double_click", place)
    match kind:
        case "type":
            return build("type", text=fields.text("text"))
        case "key":
            return build("press", keys=fields.keys(fields.texts("keys")))
        case "scroll" | "hscroll":
            at = off_middle(fields.pair("coordinate"), fields.space) if fields.has("coordinate") else None
            far = -fields.number("pixels")
            right, down = (far, 0.0) if kind == "hscroll" else (0.0, far)
            return from_scroll_pixels(right, down, _grid(fields.space), at)[0]
        case "wait":
            return build("wait", seconds=max(0, min(fields.number("time", 1), 300)))
        case "answer":
            return build("answer", text=fields.text("text"))
        case "terminate":
            failed = fields.text("status", "success") == "failure"
            return build("infeasible", reason="") if failed else build("answer", text="")
    raise ActionError(f"{NAME} has no action {str(kind)[:40]!r}")


def _grid(space: Space) -> Space:
    """The screen as the model is told it: of 1000x1000 where points are relative."""
    return Space("pixels", SCALE, SCALE) if space.kind == "relative" else space
