"""The Holo models' own tools: those of the web navigator and those of the desktop agent that followed it.

Both write `{"action": name, …}` here; `tool_name`, or `name` with `arguments`, and names ending in `_desktop` are read
too. The models count in 0–1000 from Holo2 on and in pixels of the resized image before: the space says which.

Browser tools, lost there and back: the amount and the point of a scroll; a `write_element_abs` is the text alone, so
`clear` and `enter` cannot be expressed, nor keys, hovering, dragging, other buttons, options, tabs and the infeasible.
Desktop tools, lost there and back: `element` where a text is written; scroll amounts by rounding to whole turns of the
wheel (10% of the viewport each); a selected option comes back as text with Enter; navigation goes by keys and such
keys come back as navigation. Waiting and the infeasible cannot be expressed.
"""

from __future__ import annotations

from typing import Any, Literal

from holotron.actions.action import (
    Action,
    ActionError,
    Answer,
    Back,
    Click,
    DoubleClick,
    Drag,
    Goto,
    Hover,
    Press,
    Refresh,
    Scroll,
    SwitchTab,
    Type,
    Wait,
)
from holotron.actions.dialects.fields import MIDDLE, Fields, Inexpressible, as_object, build, space_middle
from holotron.actions.dialects.sequences import expand, fold
from holotron.actions.keys import join_keys, split_keys
from holotron.actions.space import Space

NAME = "Holo"
PERCENT_PER_TURN = 10
Tools = Literal["browser", "desktop"]
_KEY_NAMES = {"Control": "ctrl", "Meta": "cmd", "Escape": "esc"} | {
    f"Arrow{side}": side.lower() for side in ("Up", "Down", "Left", "Right")
}


def to_holo(action: Action, space: Space, tools: Tools) -> list[dict[str, Any]]:
    """The tool calls that stand for an action, in order."""
    if tools == "browser":
        return [_to_browser(action, space)]
    if isinstance(action, Press):
        return [_hotkey(action)]
    return [call for part in expand(action, shortcuts=True) for call in _to_desktop(part, space)]


def from_holo(calls: list[dict[str, Any]], space: Space, start_url: str | None = None) -> list[Action]:
    """The actions in tool calls that belong to one step. With the address a task starts at, `restart` goes there."""
    if not isinstance(calls, list):
        raise ActionError(f"{NAME}: tool calls are a list, not {type(calls).__name__}")
    row: list[Action] = []
    pointer: tuple[int, int] | None = None
    for call in calls:
        name, fields = _named(as_object(NAME, call))
        if name == "drag_to":
            if pointer is None or not isinstance(row[-1], Hover):
                raise Inexpressible("a drag from where the pointer happens to be", "an action")
            to_x, to_y = fields.point(space)
            row[-1] = build("drag", x=pointer[0], y=pointer[1], to_x=to_x, to_y=to_y)
        else:
            row += _read(name, fields, space, start_url)
        pointer = fields.point(space) if name == "move_to" else None
    return fold(row, shortcuts=True)


def _to_browser(action: Action, space: Space) -> dict[str, Any]:
    match action:
        case Click(button="left"):
            return {"action": "click_element", "element": action.element, **_point(action.x, action.y, space)}
        case Type(x=int(x), y=int(y), clear=False, enter=False):
            text = {"content": action.text, "element": action.element}
            return {"action": "write_element_abs", **text, **_point(x, y, space)}
        case Scroll():
            return {"action": "scroll", "direction": action.direction}
        case Back():
            return {"action": "go_back"}
        case Refresh():
            return {"action": "refresh"}
        case Goto():
            return {"action": "goto", "url": action.url}
        case Wait():
            return {"action": "wait", "seconds": action.seconds}
        case Answer():
            return {"action": "answer", "content": action.text}
        case Click():
            raise Inexpressible(f"a click with the {action.button} button", f"{NAME}'s browser tools")
        case Type():
            what = "without a point" if action.x is None else "with clear or enter"
            raise Inexpressible(f"typing {what}", f"{NAME}'s browser tools")
    raise Inexpressible(action.action, f"{NAME}'s browser tools")


def _to_desktop(action: Action, space: Space) -> list[dict[str, Any]]:
    match action:
        case Click() | DoubleClick() | Hover():
            name = "move_to" if isinstance(action, Hover) else action.action
            call = {"action": name, "element": action.element, **_point(action.x, action.y, space)}
            return [call | ({"button": action.button} if isinstance(action, Click) else {})]
        case Drag():
            start, end = _point(action.x, action.y, space), _point(action.to_x, action.to_y, space)
            return [{"action": "move_to", **start}, {"action": "drag_to", **end}]
        case Type():
            return [{"action": "write", "content": action.text}]
        case Press():
            return [_hotkey(action)]
        case Scroll():
            x, y = (action.x, action.y) if action.x is not None and action.y is not None else MIDDLE
            size = max(1, round(action.amount / PERCENT_PER_TURN))
            return [{"action": "scroll", "direction": action.direction, "size": size, **_point(x, y, space)}]
        case Answer():
            return [{"action": "answer", "content": action.text}]
        case SwitchTab():
            raise Inexpressible(f"going to tab {action.index}; keys reach tabs 0 to 7", f"{NAME}'s desktop tools")
    raise Inexpressible(action.action, f"{NAME}'s desktop tools")


def _hotkey(action: Press) -> dict[str, Any]:
    keys = split_keys(action.keys)
    letters = len(keys) > 1
    names = [_KEY_NAMES.get(key, key.lower() if key.isascii() and (letters or len(key) > 1) else key) for key in keys]
    return {"action": "hotkey", "keys": names, "repeat": action.repeat}


def _point(x: int, y: int, space: Space) -> dict[str, int]:
    across, down = space.from_relative(x, y)
    return {"x": across, "y": down}


def _named(call: dict[str, Any]) -> tuple[str, Fields]:
    name = call.get("action") or call.get("tool_name") or call.get("name")
    if not isinstance(name, str):
        raise ActionError(f"{NAME}: a tool call has a name in the field action")
    values = as_object(NAME, call["arguments"]) if "arguments" in call else call
    name = name.removesuffix("_desktop")
    return name, Fields(NAME, name[:40], values)


def _read(name: str, fields: Fields, space: Space, start_url: str | None) -> list[Action]:
    match name:
        case "click_element" | "click" | "double_click" | "move_to":
            x, y = fields.point(space)
            kind = {"double_click": "double_click", "move_to": "hover"}.get(name, "click")
            button = fields.text("button", "left") if name == "click" else None
            return [build(kind, x=x, y=y, button=button, element=fields.text("element", ""))]
        case "write_element_abs":
            x, y = fields.point(space)
            return [build("type", text=fields.text("content"), x=x, y=y, element=fields.text("element", ""))]
        case "write":
            enter = True if fields.flag("press_enter") else None
            return [build("type", text=fields.text("content"), enter=enter)]
        case "scroll":
            return [_read_scroll(fields, space)]
        case "hotkey":
            repeat = fields.whole("repeat" if fields.has("repeat") else "repeat_count", 1)
            return [build("press", keys=_join(fields.texts("keys")), repeat=repeat)]
        case "hold_and_tap_key":
            held = fields.texts("hold_keys")
            return [build("press", keys=_join([*held, key])) for key in fields.texts("tap_keys")]
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


def _read_scroll(fields: Fields, space: Space) -> Action:
    x = y = None
    if fields.has("x") and fields.point(space) != space_middle(space):
        x, y = fields.point(space)
    size = "size" if fields.has("size") else "scroll_size"
    amount = max(1, min(fields.whole(size) * PERCENT_PER_TURN, 1000)) if fields.has(size) else None
    return build("scroll", direction=fields.text("direction"), amount=amount, x=x, y=y)


def _join(names: list[str]) -> str:
    try:
        return join_keys(names)
    except ValueError as error:
        raise ActionError(f"{NAME} hotkey: {error}") from None
