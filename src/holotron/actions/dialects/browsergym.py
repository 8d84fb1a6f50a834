"""BrowserGym's action strings, its coordinate set: `mouse_click(x, y)`, points in pixels of the page.

Lost there and back: `element`; a selected option comes back as text with Enter; a point by pixel rounding; scroll
amounts by pixel rounding on sides under 100 pixels. There is no way to load a page again, so `refresh` cannot be
expressed. Actions on element ids (`click('a51')`) name no place on the image, so they cannot be read.
"""

from __future__ import annotations

from holotron.actions import action as a
from holotron.actions.action import Action, ActionError
from holotron.actions.coordinates import Space
from holotron.actions.dialects.calls import Call, format_call, parse_calls
from holotron.actions.dialects.fields import (
    Fields,
    Inexpressible,
    build,
    from_scroll_pixels,
    inexpressible,
    to_scroll_pixels,
)
from holotron.actions.dialects.sequences import expand, fold
from holotron.actions.keys import playwright_keys, split_keys

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
# Calls whose arguments are named like the fields of an action: each with its kind.
_SAME_FIELDS = {
    "keyboard_type": "type", "goto": "goto", "go_back": "back", "go_forward": "forward", "new_tab": "new_tab",
    "tab_focus": "switch_tab", "tab_close": "close_tab", "send_msg_to_user": "answer",
    "report_infeasible": "infeasible",
}  # fmt: skip
_CALL_NAMES = {kind: name for name, kind in _SAME_FIELDS.items()}
_OTHERS = (
    "fill", "check", "uncheck", "select_option", "click", "dblclick", "hover", "press", "focus", "clear",
    "drag_and_drop", "upload_file", "mouse_upload_file", "mouse_up", "mouse_down", "keyboard_up", "keyboard_down",
)  # fmt: skip


def to_browsergym(action: Action, space: Space) -> list[str]:
    """The calls that stand for an action, in order; BrowserGym takes several as lines of one text."""
    return [call for part in expand(action, shortcuts=False) for call in _one(part, space)]


def from_browsergym(text: str, space: Space) -> list[Action]:
    """The actions in a text of one call or several."""
    return fold([action for call in parse_calls(text) for action in _read(call, space)], shortcuts=False)


def _one(action: Action, space: Space) -> list[str]:
    if name := _CALL_NAMES.get(action.action):
        return [format_call(name, *(getattr(action, field) for field in _ARGUMENTS[name]))]
    match action:
        case a.Click():
            button = [action.button] if action.button != "left" else []
            return [format_call("mouse_click", *space.from_relative(action.x, action.y), *button)]
        case a.DoubleClick():
            return [format_call("mouse_dblclick", *space.from_relative(action.x, action.y))]
        case a.Hover():
            return [format_call("mouse_move", *space.from_relative(action.x, action.y))]
        case a.Drag():
            ends = space.from_relative(action.x, action.y) + space.from_relative(action.to_x, action.to_y)
            return [format_call("mouse_drag_and_drop", *ends)]
        case a.Press():
            return [format_call("keyboard_press", playwright_keys(action.keys))]
        case a.Scroll():
            calls = [format_call("scroll", *to_scroll_pixels(action, space))]
            if action.x is not None and action.y is not None:
                calls.insert(0, format_call("mouse_move", *space.from_relative(action.x, action.y)))
            return calls
        case a.Wait():
            return [format_call("noop", round(action.seconds * 1000))]
    raise inexpressible(action, NAME)


def _read(call: Call, space: Space) -> list[Action]:
    if call.name in _OTHERS:
        raise Inexpressible(f"{NAME}'s {call.name}", "an action")
    if call.name not in _ARGUMENTS:
        raise ActionError(f"{NAME} has no action {call.name[:40]!r}; it has {', '.join(_ARGUMENTS)}")
    values = call.bind(_ARGUMENTS[call.name])
    fields = Fields(NAME, call.name, values, space)
    match call.name:
        case "mouse_click" | "mouse_dblclick":
            button = fields.text("button", "left")
            if call.name == "mouse_click":
                return [build("click", fields.point(), button=button)]
            if button != "left":
                raise Inexpressible(f"a double click with the {button[:20]} button", "an action")
            return [build("double_click", fields.point())]
        case "mouse_move":
            return [build("hover", fields.point())]
        case "mouse_drag_and_drop":
            return [build("drag", fields.point("from_x", "from_y"), fields.point("to_x", "to_y"))]
        case "keyboard_insert_text":
            return [build("type", text=fields.text("text"))]
        case "keyboard_press":
            return [build("press", keys=fields.keys(split_keys(fields.text("key"))))]
        case "scroll":
            return from_scroll_pixels(fields.number("delta_x"), fields.number("delta_y"), space, None)
        case "noop":
            return [build("wait", seconds=min(max(fields.number("wait_ms", 1000), 0) / 1000, 300))]
        case "tab_focus":
            return [build("switch_tab", index=fields.whole("index"))]
    return [build(_SAME_FIELDS[call.name], **values)]
