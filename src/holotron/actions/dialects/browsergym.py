"""BrowserGym's action strings, its coordinate set: `mouse_click(x, y)`, points in pixels of the page.

Lost there and back: `element`; a selected option comes back as text with Enter; a point by pixel rounding; scroll
amounts by pixel rounding on sides under 100 pixels. There is no way to load a page again, so `refresh` cannot be
expressed. Actions on element ids (`click('a51')`) name no place on the image, so they cannot be read.
"""

from __future__ import annotations

from typing import Any

from holotron.actions.action import (
    Action,
    ActionError,
    Answer,
    Back,
    Click,
    CloseTab,
    DoubleClick,
    Drag,
    Forward,
    Goto,
    Hover,
    Infeasible,
    NewTab,
    Press,
    Scroll,
    SwitchTab,
    Type,
    Wait,
)
from holotron.actions.dialects.calls import Call, format_call, parse_calls
from holotron.actions.dialects.fields import Fields, Inexpressible, build, scroll_pixels, scrolls
from holotron.actions.dialects.sequences import expand, fold
from holotron.actions.keys import parse_keys, playwright_keys
from holotron.actions.space import Space

NAME = "BrowserGym"
_ARGUMENTS = {
    "mouse_click": ("x", "y", "button"),
    "mouse_dblclick": ("x", "y", "button"),
    "mouse_move": ("x", "y"),
    "mouse_drag_and_drop": ("from_x", "from_y", "to_x", "to_y"),
    "keyboard_type": ("text",),
    "keyboard_insert_text": ("text",),
    "keyboard_press": ("key",),
    "scroll": ("delta_x", "delta_y"),
    "goto": ("url",),
    "go_back": (),
    "go_forward": (),
    "new_tab": (),
    "tab_focus": ("index",),
    "tab_close": (),
    "send_msg_to_user": ("text",),
    "report_infeasible": ("reason",),
    "noop": ("wait_ms",),
}
_OTHERS = (
    "fill", "check", "uncheck", "select_option", "click", "dblclick", "hover", "press", "focus", "clear",
    "drag_and_drop", "upload_file", "mouse_upload_file", "mouse_up", "mouse_down", "keyboard_up", "keyboard_down",
)  # fmt: skip


def to_browsergym(action: Action, space: Space) -> list[str]:
    """The calls that stand for an action, in order; BrowserGym takes several as lines of one text."""
    return [call for part in expand(action, shortcuts=False) for call in _one(part, space)]


def from_browsergym(text: str, space: Space) -> list[Action]:
    """The actions in a text of one call or several."""
    if not isinstance(text, str):
        raise ActionError(f"{NAME}: an action is a text, not {type(text).__name__}")
    return fold([action for call in parse_calls(text) for action in _read(call, space)], shortcuts=False)


def _one(action: Action, space: Space) -> list[str]:
    match action:
        case Click():
            button = [action.button] if action.button != "left" else []
            return [format_call("mouse_click", *space.from_relative(action.x, action.y), *button)]
        case DoubleClick():
            return [format_call("mouse_dblclick", *space.from_relative(action.x, action.y))]
        case Hover():
            return [format_call("mouse_move", *space.from_relative(action.x, action.y))]
        case Drag():
            ends = space.from_relative(action.x, action.y) + space.from_relative(action.to_x, action.to_y)
            return [format_call("mouse_drag_and_drop", *ends)]
        case Type():
            return [format_call("keyboard_type", action.text)]
        case Press():
            return [format_call("keyboard_press", playwright_keys(action.keys))]
        case Scroll():
            calls = [format_call("scroll", *scroll_pixels(action, space))]
            if action.x is not None and action.y is not None:
                calls.insert(0, format_call("mouse_move", *space.from_relative(action.x, action.y)))
            return calls
        case Goto():
            return [format_call("goto", action.url)]
        case Back():
            return [format_call("go_back")]
        case Forward():
            return [format_call("go_forward")]
        case NewTab():
            return [format_call("new_tab")]
        case SwitchTab():
            return [format_call("tab_focus", action.index)]
        case CloseTab():
            return [format_call("tab_close")]
        case Wait():
            return [format_call("noop", round(action.seconds * 1000))]
        case Answer():
            return [format_call("send_msg_to_user", action.text)]
        case Infeasible():
            return [format_call("report_infeasible", action.reason)]
    raise Inexpressible(action.action, NAME)


def _read(call: Call, space: Space) -> list[Action]:
    if call.name in _OTHERS:
        raise Inexpressible(f"{NAME}'s {call.name}", "an action")
    if call.name not in _ARGUMENTS:
        raise ActionError(f"{NAME} has no action {call.name[:40]!r}; it has {', '.join(_ARGUMENTS)}")
    values: dict[str, Any] = call.bind(_ARGUMENTS[call.name])
    fields = Fields(NAME, call.name, values)
    match call.name:
        case "mouse_click" | "mouse_dblclick":
            button = fields.text("button", "left")
            if call.name == "mouse_dblclick" and button != "left":
                raise Inexpressible(f"a double click with the {button[:20]} button", "an action")
            x, y = fields.point(space)
            if call.name == "mouse_dblclick":
                return [build("double_click", x=x, y=y)]
            return [build("click", x=x, y=y, button=button)]
        case "mouse_move":
            x, y = fields.point(space)
            return [build("hover", x=x, y=y)]
        case "mouse_drag_and_drop":
            (x, y), (to_x, to_y) = fields.point(space, "from_x", "from_y"), fields.point(space, "to_x", "to_y")
            return [build("drag", x=x, y=y, to_x=to_x, to_y=to_y)]
        case "keyboard_type" | "keyboard_insert_text":
            return [build("type", text=fields.text("text"))]
        case "keyboard_press":
            return [build("press", keys=_read_keys(fields.text("key")))]
        case "scroll":
            return scrolls(fields.number("delta_x"), fields.number("delta_y"), space, None)
        case "noop":
            return [build("wait", seconds=min(max(fields.number("wait_ms", 1000), 0) / 1000, 300))]
        case "tab_focus":
            return [build("switch_tab", index=fields.whole("index"))]
        case "goto":
            return [build("goto", url=fields.text("url"))]
        case "send_msg_to_user":
            return [build("answer", text=fields.text("text"))]
        case "report_infeasible":
            return [build("infeasible", reason=fields.text("reason"))]
    return [build({"go_back": "back", "go_forward": "forward", "tab_close": "close_tab"}.get(call.name, call.name))]


def _read_keys(text: str) -> str:
    try:
        return parse_keys(text)
    except ValueError as error:
        raise ActionError(f"{NAME} keyboard_press: {error}") from None
