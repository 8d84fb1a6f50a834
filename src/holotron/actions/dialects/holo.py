"""The Holo models' own tools: those of the web navigator and those of the desktop agent that followed it.

Both write `{"action": name, …}` here; `tool_name`, or `name` with `arguments`, and names ending in `_desktop` are read
too. The models count in 0–1000 from Holo2 on and in pixels of the resized image before: the space says which.

Browser tools, lost there and back: the amount and the point of a scroll; a `write_element_abs` empties the field, then
writes and presses Enter, so a text comes back with `clear`, and one without Enter cannot be expressed, nor can keys,
hovering, dragging, other buttons, options, tabs and the infeasible.
Desktop tools, lost there and back: `element` where a text is written; scroll amounts by rounding to whole turns of the
wheel (10% of the viewport each); a selected option comes back as text with Enter; navigation goes by keys and such
keys come back as navigation. Waiting and the infeasible cannot be expressed. A later catalogue of the desktop agent has
`write_at`, `drag_and_drop` and `wait` too: they are read.
"""

from __future__ import annotations

from typing import Any, Literal

from holotron.actions import action as a
from holotron.actions.action import Action, ActionError
from holotron.actions.coordinates import Space
from holotron.actions.dialects.fields import (
    Fields,
    Inexpressible,
    Point,
    as_object,
    as_objects,
    build,
    from_turns,
    inexpressible,
    known_place,
    lower_names,
    off_middle,
    scroll_point,
    to_turns,
    to_xy,
)
from holotron.actions.dialects.sequences import expand, fold

NAME = "Holo"
BROWSER_TOOLS, DESKTOP_TOOLS = f"{NAME}'s browser tools", f"{NAME}'s desktop tools"
Tools = Literal["browser", "desktop"]


def to_holo(action: Action, space: Space, tools: Tools) -> list[dict[str, Any]]:
    """The tool calls that stand for an action, in order."""
    if tools == "browser":
        return [_to_browser(action, space)]
    if isinstance(action, a.Press):
        return _to_desktop(action, space)  # one call for any `repeat`
    return [call for part in expand(action, shortcuts=True) for call in _to_desktop(part, space)]


def from_holo(
    calls: list[dict[str, Any]], space: Space, start_url: str | None = None, pointer: Point | None = None
) -> list[Action]:
    """The actions in tool calls that belong to one step. With the address a task starts at, `restart` goes there.

    pointer: where the last step left it, in 0–1000; a drag begins there.
    """
    row: list[Action] = []
    for call in as_objects(NAME, calls):
        name, fields = _named(call, space)
        if name == "drag_to":
            start = known_place(pointer, "a drag from")
            if row:  # the move to where it begins
                row.pop()
            row.append(build("drag", start, fields.point()))
        else:
            row += _read(name, fields, start_url)
        pointer = fields.point() if name == "move_to" else None
    return fold(row, shortcuts=True)


def _to_browser(action: Action, space: Space) -> dict[str, Any]:
    match action:
        case a.Click(button="left"):
            return {"action": "click_element", "element": action.element, **to_xy(action.x, action.y, space)}
        case a.Type(x=int(x), y=int(y), enter=True):
            text = {"content": action.text, "element": action.element}
            return {"action": "write_element_abs", **text, **to_xy(x, y, space)}
        case a.Scroll():
            return {"action": "scroll", "direction": action.direction}
        case a.Back() | a.Refresh():
            return {"action": "go_back" if isinstance(action, a.Back) else "refresh"}
        case a.Goto():
            return {"action": "goto", "url": action.url}
        case a.Wait():
            return {"action": "wait", "seconds": action.seconds}
        case a.Answer():
            return {"action": "answer", "content": action.text}
        case a.Click():
            raise inexpressible(action, BROWSER_TOOLS)
        case a.Type():
            what = "typing without a point" if action.x is None else "typing without Enter"
            raise Inexpressible(what, BROWSER_TOOLS)
    raise Inexpressible(action.action, BROWSER_TOOLS)


def _to_desktop(action: Action, space: Space) -> list[dict[str, Any]]:
    match action:
        case a.Click() | a.DoubleClick() | a.Hover():
            name = "move_to" if isinstance(action, a.Hover) else action.action
            call = {"action": name, "element": action.element, **to_xy(action.x, action.y, space)}
            return [call | ({"button": action.button} if isinstance(action, a.Click) else {})]
        case a.Drag():
            start, end = to_xy(action.x, action.y, space), to_xy(action.to_x, action.to_y, space)
            return [{"action": "move_to", **start}, {"action": "drag_to", **end}]
        case a.Type():
            return [{"action": "write", "content": action.text}]
        case a.Press():
            return [{"action": "hotkey", "keys": lower_names(action.keys, meta="cmd"), "repeat": action.repeat}]
        case a.Scroll():
            turns = {"direction": action.direction, "size": to_turns(action)}
            return [{"action": "scroll", **turns, **to_xy(*scroll_point(action), space)}]
        case a.Answer():
            return [{"action": "answer", "content": action.text}]
    raise inexpressible(action, DESKTOP_TOOLS)


def _named(call: dict[str, Any], space: Space) -> tuple[str, Fields]:
    name = call.get("action") or call.get("tool_name") or call.get("name")
    if not isinstance(name, str):
        raise ActionError(f"{NAME}: a tool call has a name in the field action")
    values = as_object(NAME, call["arguments"]) if "arguments" in call else call
    name = name.removesuffix("_desktop")
    return name, Fields(NAME, name, values, space)


def _read(name: str, fields: Fields, start_url: str | None) -> list[Action]:
    match name:
        case "click_element" | "click" | "double_click" | "move_to":
            kind = {"double_click": "double_click", "move_to": "hover"}.get(name, "click")
            button = fields.text("button", "left") if name == "click" else None
            return [build(kind, fields.point(), button=button, element=fields.text("element", ""))]
        case "write_element_abs":
            text, element = fields.text("content"), fields.text("element", "")
            return [build("type", fields.point(), text=text, element=element, clear=True, enter=True)]
        case "write" | "write_at":
            at = fields.point() if name == "write_at" else None
            described = fields.text("element", "") if at else None
            clear, enter = fields.flag("overwrite"), fields.flag("press_enter")
            return [build("type", at, text=fields.text("content"), element=described, clear=clear, enter=enter)]
        case "drag_and_drop":
            return [build("drag", fields.point("x1", "y1"), fields.point("x2", "y2"))]
        case "scroll":
            at = off_middle(fields.point(), fields.space) if fields.has("x") else None
            size = "size" if fields.has("size") else "scroll_size"
            amount = from_turns(fields.whole(size)) if fields.has(size) else None
            return [build("scroll", at, direction=fields.text("direction"), amount=amount)]
        case "hotkey":
            repeat = fields.whole("repeat" if fields.has("repeat") else "repeat_count", 1)
            return [build("press", keys=fields.keys(fields.texts("keys")), repeat=repeat)]
        case "hold_and_tap_key":
            held = fields.texts("hold_keys")
            return [build("press", keys=fields.keys([*held, key])) for key in fields.texts("tap_keys")]
        case "go_back" | "refresh":
            return [build(name.removeprefix("go_"))]
        case "goto":
            return [build("goto", url=fields.text("url"))]
        case "wait":
            return [build("wait", seconds=min(fields.number("seconds"), 300))]
        case "answer":
            return [build("answer", text=fields.text("content"))]
        case "restart" if start_url is not None:
            return [build("goto", url=start_url)]
        case "restart" | "key_down" | "key_up" | "update_plan":
            raise Inexpressible(f"{NAME}'s {name}", "an action")
    raise ActionError(f"{NAME} has no tool {name[:40]!r}")
