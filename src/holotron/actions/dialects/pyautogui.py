"""PyAutoGUI calls as data sets write them: `pyautogui.click(x=0.5, y=0.3)`, and their helpers `computer.`, `mobile.`.

AgentNet, Aguvis, ScaleCUA and their descendants write these, with and without the module's name. Points are counted in
a Space; written, they are shares of each side with three decimals. A positive scroll goes up; `page` is a share of the
view, a number without a name counts turns of the wheel. A swipe is the scroll that it brings about.

What has no call of its own is written as `browser.KIND(…)` with the fields of the action. Lost there and back:
`element`; scroll amounts by rounding to hundredths; a line end after a text is Enter. A triple click is read as a
double click. What only a phone can do, keys held down and clicks whose place is not known cannot be read.
"""

from __future__ import annotations

import re
from typing import Any

from holotron.actions import action as a
from holotron.actions.action import Action, ActionError, to_dict
from holotron.actions.coordinates import SCALE, Space
from holotron.actions.dialects.calls import Call, format_call, parse_calls
from holotron.actions.dialects.fields import Fields, Inexpressible, Point, build, from_turns, known_place, lower_names
from holotron.actions.dialects.sequences import expand, fold
from holotron.actions.keys import split_keys

NAME = "PyAutoGUI"
_MODULES = re.compile(r"^(?:pyautogui|computer|mobile|time)\.")
_NOISE = re.compile(r"^\s*(?:```\w*|#.*|import \w+|from \w+ import .*)\s*$", re.MULTILINE)
_FENCES = re.compile(r"```(?:\w+\n)?")
_SAME = {
    "double_click": "doubleclick", "left_double": "doubleclick", "triple_click": "doubleclick",
    "tripleclick": "doubleclick", "right_click": "rightclick", "right_single": "rightclick",
    "middle_click": "middleclick", "move_mouse": "moveto", "mousemove": "moveto", "drag": "dragto",
    "typewrite": "write", "type": "write", "sleep": "wait", "navigate_back": "back", "final_answer": "answer",
    "response": "answer", "calluser": "call_user", "tap": "click",
}  # fmt: skip
_ARGUMENTS = {
    "click": ("x", "y", "clicks", "interval", "button", "duration"),
    "doubleclick": ("x", "y", "interval", "button", "duration"),
    "rightclick": ("x", "y", "interval", "duration"),
    "middleclick": ("x", "y", "interval", "duration"),
    "moveto": ("x", "y", "duration"),
    "dragto": ("x", "y", "duration", "button", "from_coord", "to_coord"),
    "swipe": ("from_coord", "to_coord", "direction", "amount", "duration"),
    "write": ("message", "interval", "text", "content"),
    "press": ("keys", "presses", "interval", "key"),
    "scroll": ("clicks", "x", "y", "page", "direction", "amount"),
    "hscroll": ("clicks", "x", "y", "page"),
    "wait": ("seconds", "duration"),
    "terminate": ("status", "answer", "reason", "info"),
    "answer": ("text", "answer", "message"),
    "call_user": (),
    "back": (),
}
# Actions that a browser has and PyAutoGUI has not.
_BROWSER = ("select", "goto", "back", "forward", "refresh", "new_tab", "switch_tab", "close_tab", "infeasible")


def to_pyautogui(action: Action) -> list[str]:
    """The calls that stand for an action, in order; lines of one text."""
    if action.action in _BROWSER:
        fields = {key: value / SCALE if key in ("x", "y") else value for key, value in to_dict(action).items()}
        return [format_call(f"browser.{fields.pop('action')}", **fields)]
    if isinstance(action, a.Press):
        return [_press(action)]
    return [_one(part) for part in expand(action, shortcuts=False)]


def from_pyautogui(text: str, space: Space, pointer: Point | None = None) -> list[Action]:
    """The actions in the code of one step. pointer: where the last step left it, in 0–1000; a drag begins there."""
    if not isinstance(text, str):
        raise ActionError(f"{NAME}: the code of a step is a text, not {type(text).__name__}")
    row: list[Action] = []
    for call in parse_calls(_FENCES.sub("", _NOISE.sub("", text))):
        action = _read(call, space, pointer)
        if isinstance(action, a.Drag) and row and isinstance(row[-1], a.Hover):
            row.pop()  # the move to where it begins
        row.append(action)
        x, y = getattr(action, "to_x", getattr(action, "x", None)), getattr(action, "to_y", getattr(action, "y", None))
        pointer = pointer if x is None or y is None else (x, y)
    return fold(row, shortcuts=False)


def _one(action: Action) -> str:
    at = {name: getattr(action, name) / SCALE for name in ("x", "y") if getattr(action, name, None) is not None}
    match action:
        case a.Click():
            name = {"left": "click", "right": "rightClick", "middle": "middleClick"}[action.button]
            return format_call(f"pyautogui.{name}", **at)
        case a.DoubleClick():
            return format_call("pyautogui.doubleClick", **at)
        case a.Hover():
            return format_call("pyautogui.moveTo", **at)
        case a.Drag():
            ends = [action.x / SCALE, action.y / SCALE], [action.to_x / SCALE, action.to_y / SCALE]
            return format_call("pyautogui.dragTo", from_coord=ends[0], to_coord=ends[1])
        case a.Type():
            return format_call("pyautogui.write", message=action.text)
        case a.Press():
            return _press(action)
        case a.Scroll():
            page = action.amount / 100 if action.direction in ("up", "right") else -action.amount / 100
            name = "scroll" if action.direction in ("up", "down") else "hscroll"
            return format_call(f"pyautogui.{name}", page=page, **at)
        case a.Wait():
            return format_call("computer.wait", seconds=action.seconds)
        case a.Answer():
            return format_call("computer.terminate", status="success", answer=action.text)
    raise Inexpressible(action.action, NAME)


def _press(action: a.Press) -> str:
    names = lower_names(action.keys, meta="win")
    if len(names) > 1:
        return "\n".join([format_call("pyautogui.hotkey", *names)] * action.repeat)
    again = {"presses": action.repeat} if action.repeat > 1 else {}
    return format_call("pyautogui.press", names[0], **again)


def _read(call: Call, space: Space, pointer: Point | None) -> Action:
    name = _MODULES.sub("", call.name)
    if name.startswith("browser."):
        return _browser(Call(name.removeprefix("browser."), call.positional, call.named), space)
    name = _SAME.get(name.lower(), name.lower())
    if name == "hotkey":
        return build("press", keys=_hotkey(call, space))
    if name not in _ARGUMENTS:
        raise Inexpressible(f"{NAME}'s {call.name[:40]}", "an action")
    fields = Fields(NAME, call.name, call.bind(_ARGUMENTS[name]), space)
    match name:
        case "click" | "doubleclick" | "rightclick" | "middleclick":
            return _click(name, fields, _place(fields, pointer))
        case "moveto":
            return build("hover", _place(fields, None))
        case "dragto":
            return _drag(fields, pointer)
        case "swipe":
            return _swipe(fields)
        case "write":
            text = fields.text(next((key for key in ("text", "content") if fields.has(key)), "message"))
            return build("type", text=text.rstrip("\n"), enter=True if text.endswith("\n") else None)
        case "press":
            return _pressed(fields)
        case "scroll" | "hscroll":
            return _scroll(name, fields)
        case "wait":
            seconds = fields.number("duration" if fields.has("duration") else "seconds", 1)
            return build("wait", seconds=min(max(seconds, 0), 300))
        case "terminate":
            said = fields.text(next((key for key in ("info", "reason") if fields.has(key)), "answer"), "")
            failed = fields.text("status", "success").startswith("fail")
            return build("infeasible", reason=said) if failed else build("answer", text=said)
        case "answer":
            return build(
                "answer", text=fields.text(next((key for key in ("answer", "message") if fields.has(key)), "text"))
            )
        case "back":
            return build("back")
    return build("infeasible", reason="")


def _place(fields: Fields, pointer: Point | None) -> Point:
    return fields.point() if fields.has("x") or fields.has("y") else known_place(pointer, fields.name)


def _click(name: str, fields: Fields, at: Point) -> Action:
    buttons = {"rightclick": "right", "middleclick": "middle"}
    button = buttons.get(name) or fields.text("button", "left")
    if name == "doubleclick" or fields.whole("clicks", 1) > 1:
        if button != "left":
            raise Inexpressible(f"a double click with the {button[:20]} button", "an action")
        return build("double_click", at)
    return build("click", at, button=button if button != "left" else None)


def _drag(fields: Fields, pointer: Point | None) -> Action:
    if fields.text("button", "left") != "left":
        raise Inexpressible("a drag with another button than the left", "an action")
    start = fields.pair("from_coord") if fields.has("from_coord") else pointer
    start = known_place(start, "a drag from")
    return build("drag", start, fields.pair("to_coord") if fields.has("to_coord") else fields.point())


def _swipe(fields: Fields) -> Action:
    if not (fields.has("from_coord") and fields.has("to_coord")):
        raise Inexpressible("a swipe whose ends are not known", "an action")
    (x, y), (to_x, to_y) = fields.pair("from_coord"), fields.pair("to_coord")
    right, down = x - to_x, y - to_y  # the view goes where the finger comes from
    sideways = abs(right) > abs(down)
    direction = ("right" if right > 0 else "left") if sideways else ("down" if down > 0 else "up")
    return build("scroll", (x, y), direction=direction, amount=max(1, round(max(abs(right), abs(down)) / 10)))


def _scroll(name: str, fields: Fields) -> Action:
    at = fields.point() if fields.has("x") else None
    if fields.has("direction"):
        amount = round(fields.number("amount", 50))
        return build("scroll", at, direction=fields.text("direction").lower(), amount=max(1, min(amount, 1000)))
    value = fields.number("page" if fields.has("page") else "clicks")
    if not value:
        return build("wait", seconds=0)
    forward, backward = ("up", "down") if name == "scroll" else ("right", "left")
    # A share of the view is a fraction; turns of the wheel are whole.
    share = fields.has("page") or value != int(value)
    amount = max(1, min(round(abs(value) * 100), 1000)) if share else from_turns(abs(int(value)))
    return build("scroll", at, direction=forward if value > 0 else backward, amount=amount)


def _pressed(fields: Fields) -> Action:
    name = "key" if fields.has("key") else "keys"
    try:
        keys = [fields.text(name)]
    except ActionError:
        keys = fields.texts(name)
    if len(keys) > 1:
        raise Inexpressible(f"{len(keys)} keys one after the other", "an action")
    presses = fields.whole("presses", 1)
    return build("press", keys=fields.keys(split_keys(keys[0])), repeat=presses if presses != 1 else None)


def _hotkey(call: Call, space: Space) -> str:
    given: list[Any] = list(call.positional) or [call.named.get("keys", call.named.get("args"))]
    names = given[0] if isinstance(given[0], list) else given
    fields = Fields(NAME, call.name, {"keys": names}, space)
    return fields.keys(fields.texts("keys"))


def _browser(call: Call, space: Space) -> Action:
    kind = "select" if call.name == "select_option" else call.name
    if kind not in _BROWSER or call.positional:
        raise Inexpressible(f"{NAME}'s browser.{call.name[:40]}", "an action")
    values = dict(call.named)
    fields = Fields(NAME, call.name, values, space)
    at = fields.point() if fields.has("x") else None
    if call.name == "select_option":
        values["option"] = values.pop("value", None)
    return build(kind, at, **{key: value for key, value in values.items() if key not in ("x", "y")})
