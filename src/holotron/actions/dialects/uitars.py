"""The UI-TARS grammar: `click(point='<point>x y</point>')`; the older `click(start_box='(x,y)')` is read, too.

The models count in 0–1000 or in pixels of their resized image, depending on their version: the space says which. Lost
there and back: `element`; the amount of a scroll; the seconds of a wait (it means 5); the reason of the infeasible
(`call_user()`); an Enter after a text is the line end it ends with, so texts do not end with line ends; a selected
option comes back as text with Enter; a point by pixel rounding; navigation goes by keys and such keys come back as
navigation; a scroll point in the very middle is left out. Middle clicks cannot be expressed.
"""

from __future__ import annotations

import re

from holotron.actions import action as a
from holotron.actions.action import Action, ActionError
from holotron.actions.coordinates import Space
from holotron.actions.dialects.calls import Call, format_call, parse_calls
from holotron.actions.dialects.fields import (
    Fields,
    Inexpressible,
    Point,
    build,
    inexpressible,
    lower_names,
    off_middle,
    scroll_point,
)
from holotron.actions.dialects.sequences import ENTER, expand, fold
from holotron.actions.keys import split_keys

NAME = "UI-TARS"
WAIT_SECONDS = 5
_NUMBER = r"(-?\d{1,6}(?:\.\d{1,9})?)"
_POINT = re.compile(rf"[(\[]?\s*{_NUMBER}[\s,]+{_NUMBER}(?:[\s,]+{_NUMBER}[\s,]+{_NUMBER})?\s*[)\]]?")
_TAGS = re.compile(r"</?(?:point|bbox)>|<\|box_(?:start|end)\|>")
_REPLY = re.compile(r"(?P<thought>.*?)\s*Action:\s*(?P<action>.*)", re.DOTALL)


def to_uitars(action: Action, space: Space) -> list[str]:
    """The calls that stand for an action, in order."""
    row = expand(action, shortcuts=True)
    calls = []
    for position, part in enumerate(row):
        if part == ENTER and position and isinstance(row[position - 1], a.Type):
            continue  # it is in the text
        enter = isinstance(part, a.Type) and row[position + 1 : position + 2] == [ENTER]
        calls.append(_one(part, space, enter))
    return calls


def from_uitars(text: str, space: Space) -> list[Action]:
    """The actions in a text that is one call or several of one step."""
    return fold([_read(call, space) for call in parse_calls(text)], shortcuts=True)


def split_reply(reply: str) -> tuple[str, str]:
    """The thought and the action of a reply `Thought: … Action: …`; a reply without these marks is all action."""
    match = _REPLY.fullmatch(reply.strip())
    return (match["thought"].removeprefix("Thought:").strip(), match["action"]) if match else ("", reply)


def _one(action: Action, space: Space, enter: bool) -> str:
    match action:
        case a.Click(button="left" | "right"):
            name = "click" if action.button == "left" else "right_single"
            return format_call(name, point=_point(action.x, action.y, space))
        case a.DoubleClick() | a.Hover():
            name = "hover" if isinstance(action, a.Hover) else "left_double"
            return format_call(name, point=_point(action.x, action.y, space))
        case a.Drag():
            start, end = _point(action.x, action.y, space), _point(action.to_x, action.to_y, space)
            return format_call("drag", start_point=start, end_point=end)
        case a.Type():
            return format_call("type", content=action.text + "\n" * enter)
        case a.Press():
            return format_call("hotkey", key=" ".join(lower_names(action.keys, meta="win")))
        case a.Scroll():
            return format_call("scroll", point=_point(*scroll_point(action), space), direction=action.direction)
        case a.Wait():
            return format_call("wait")
        case a.Answer():
            return format_call("finished", content=action.text)
        case a.Infeasible():
            return format_call("call_user")
    raise inexpressible(action, NAME)


def _point(x: int, y: int, space: Space) -> str:
    across, down = space.from_relative(x, y)
    return f"<point>{across} {down}</point>"


def _read(call: Call, space: Space) -> Action:
    if call.positional:
        raise ActionError(f"{NAME} {call.name[:40]}: every argument has a name")
    fields = Fields(NAME, call.name, call.named, space)
    match call.name:
        case "click" | "left_single" | "right_single" | "left_double" | "hover":
            kind = {"left_double": "double_click", "hover": "hover"}.get(call.name, "click")
            button = "right" if call.name == "right_single" else None
            return build(kind, _read_point(fields, "point", "start_box"), button=button)
        case "drag" | "select":
            start = _read_point(fields, "start_point", "start_box")
            return build("drag", start, _read_point(fields, "end_point", "end_box"))
        case "type":
            content = fields.text("content")
            text = content.rstrip("\n")
            return build("type", text=text, enter=True if text != content else None)
        case "hotkey" | "press":
            text = fields.text("key" if fields.has("key") else call.name)
            names = text.split() or [text]
            return build("press", keys=fields.keys(names if len(names) > 1 else split_keys(names[0])))
        case "scroll":
            point = None
            if fields.has("point") or fields.has("start_box"):
                point = off_middle(_read_point(fields, "point", "start_box"), space)
            return build("scroll", point, direction=fields.text("direction").strip().lower())
        case "wait":
            return build("wait", seconds=WAIT_SECONDS)
        case "finished":
            return build("answer", text=fields.text("content", ""))
        case "call_user":
            return build("infeasible", reason=fields.text("content", ""))
        case "keydown" | "keyup" | "release" | "long_press" | "open_app" | "press_home" | "press_back":
            raise Inexpressible(call.name, "an action")
    raise ActionError(f"{NAME} has no action {call.name[:40]!r}")


def _read_point(fields: Fields, name: str, older: str) -> Point:
    name = name if fields.has(name) else older
    text = fields.text(name)
    match = _POINT.fullmatch(_TAGS.sub(" ", text).strip()) if len(text) < 200 else None
    if match is None:
        raise ActionError(f"{fields.name}: {name} is {text[:60]!r}; it must be '<point>x y</point>' or '(x,y)'")
    numbers = [float(number) for number in match.groups() if number is not None]
    # Of a box, the middle.
    x, y = numbers if len(numbers) == 2 else [(numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2]
    return fields.space.to_relative(x, y)
