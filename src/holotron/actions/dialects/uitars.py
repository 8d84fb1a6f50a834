"""The UI-TARS grammar: `click(point='<point>x y</point>')` and, older, `click(start_box='(x,y)')`.

The models count in 0–1000 or in pixels of their resized image, depending on their version: the space says which. Lost
there and back: `element`; the amount of a scroll; the seconds of a wait (it means 5); the reason of the infeasible
(`call_user()`); an Enter after a text is the line end it ends with, so texts do not end with line ends; a selected
option comes back as text with Enter; a point by pixel rounding; navigation goes by keys and such keys come back as
navigation; a scroll point in the very middle is left out. Middle clicks cannot be expressed.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from holotron.actions.action import (
    Action,
    ActionError,
    Answer,
    Click,
    DoubleClick,
    Drag,
    Hover,
    Infeasible,
    Press,
    Scroll,
    SwitchTab,
    Type,
    Wait,
)
from holotron.actions.dialects.calls import Call, format_call, parse_calls
from holotron.actions.dialects.fields import MIDDLE, Fields, Inexpressible, build, space_middle
from holotron.actions.dialects.sequences import ENTER, expand, fold
from holotron.actions.keys import join_keys, split_keys
from holotron.actions.space import Space

NAME = "UI-TARS"
WAIT_SECONDS = 5
PointForm = Literal["point", "box"]
_KEY_NAMES = {
    "Control": "ctrl",
    "Meta": "win",
    "Escape": "esc",
    "ArrowUp": "up",
    "ArrowDown": "down",
    "ArrowLeft": "left",
    "ArrowRight": "right",
}
_NUMBER = r"(-?\d{1,6}(?:\.\d{1,9})?)"
_POINT = re.compile(rf"[(\[]?\s*{_NUMBER}[\s,]+{_NUMBER}(?:[\s,]+{_NUMBER}[\s,]+{_NUMBER})?\s*[)\]]?")
_TAGS = re.compile(r"</?(?:point|bbox)>|<\|box_(?:start|end)\|>")
_REPLY = re.compile(r"(?P<thought>.*?)\s*Action:\s*(?P<action>.*)", re.DOTALL)


def to_uitars(action: Action, space: Space, form: PointForm = "point") -> list[str]:
    """The calls that stand for an action, in order."""
    row = expand(action, shortcuts=True)
    calls = []
    for position, part in enumerate(row):
        if part == ENTER and position and isinstance(row[position - 1], Type):
            continue  # it is in the text
        enter = isinstance(part, Type) and row[position + 1 : position + 2] == [ENTER]
        calls.append(_one(part, space, form, enter))
    return calls


def from_uitars(text: str, space: Space) -> list[Action]:
    """The actions in a text that is one call or several of one step."""
    if not isinstance(text, str):
        raise ActionError(f"{NAME}: an action is a text, not {type(text).__name__}")
    return fold([_read(call, space) for call in parse_calls(text)], shortcuts=True)


def split_reply(reply: str) -> tuple[str, str]:
    """The thought and the action of a reply `Thought: … Action: …`; a reply without these marks is all action."""
    match = _REPLY.fullmatch(reply.strip())
    return (match["thought"].removeprefix("Thought:").strip(), match["action"]) if match else ("", reply)


def _one(action: Action, space: Space, form: PointForm, enter: bool) -> str:
    start = "point" if form == "point" else "start_box"
    match action:
        case Click(button="left" | "right"):
            name = "click" if action.button == "left" else "right_single"
            return format_call(name, **{start: _point(action.x, action.y, space, form)})
        case DoubleClick() | Hover():
            name = "hover" if isinstance(action, Hover) else "left_double"
            return format_call(name, **{start: _point(action.x, action.y, space, form)})
        case Drag():
            ends = _point(action.x, action.y, space, form), _point(action.to_x, action.to_y, space, form)
            names = ("start_point", "end_point") if form == "point" else ("start_box", "end_box")
            return format_call("drag", **dict(zip(names, ends, strict=True)))
        case Type():
            return format_call("type", content=action.text + "\n" * enter)
        case Press():
            *modifiers, main = split_keys(action.keys)
            main = _KEY_NAMES.get(main, main.lower() if main.isascii() and (modifiers or len(main) > 1) else main)
            return format_call("hotkey", key=" ".join([*(_KEY_NAMES.get(k, k.lower()) for k in modifiers), main]))
        case Scroll():
            x, y = (action.x, action.y) if action.x is not None and action.y is not None else MIDDLE
            return format_call("scroll", **{start: _point(x, y, space, form), "direction": action.direction})
        case Wait():
            return format_call("wait")
        case Answer():
            return format_call("finished", content=action.text)
        case Infeasible():
            return format_call("call_user")
        case Click():
            raise Inexpressible(f"a click with the {action.button} button", NAME)
        case SwitchTab():
            raise Inexpressible(f"going to tab {action.index}; keys reach tabs 0 to 7", NAME)
    raise Inexpressible(action.action, NAME)


def _point(x: int, y: int, space: Space, form: PointForm) -> str:
    across, down = space.from_relative(x, y)
    return f"<point>{across} {down}</point>" if form == "point" else f"({across},{down})"


def _read(call: Call, space: Space) -> Action:
    values: dict[str, Any] = call.named
    if call.positional:
        raise ActionError(f"{NAME} {call.name[:40]}: every argument has a name")
    fields = Fields(NAME, call.name[:40], values)
    match call.name:
        case "click" | "left_single" | "right_single" | "left_double" | "hover":
            x, y = _read_point(fields, space, "point", "start_box")
            kind = {"left_double": "double_click", "hover": "hover"}.get(call.name, "click")
            return build(kind, x=x, y=y, button="right" if call.name == "right_single" else None)
        case "drag" | "select":
            x, y = _read_point(fields, space, "start_point", "start_box")
            to_x, to_y = _read_point(fields, space, "end_point", "end_box")
            return build("drag", x=x, y=y, to_x=to_x, to_y=to_y)
        case "type":
            content = fields.text("content")
            text = content.rstrip("\n")
            return build("type", text=text, enter=True if text != content else None)
        case "hotkey" | "press":
            return build("press", keys=_read_keys(fields.text("key" if fields.has("key") else call.name)))
        case "scroll":
            point = None
            if fields.has("point") or fields.has("start_box"):
                point = _read_point(fields, space, "point", "start_box")
            sx, sy = point if point and point != space_middle(space) else (None, None)
            return build("scroll", direction=fields.text("direction").strip().lower(), x=sx, y=sy)
        case "wait":
            return build("wait", seconds=WAIT_SECONDS)
        case "finished":
            return build("answer", text=fields.text("content", ""))
        case "call_user":
            return build("infeasible", reason=fields.text("content", ""))
        case "keydown" | "keyup" | "release" | "long_press" | "open_app" | "press_home" | "press_back":
            raise Inexpressible(call.name, "an action")
    raise ActionError(f"{NAME} has no action {call.name[:40]!r}")


def _read_point(fields: Fields, space: Space, name: str, older: str) -> tuple[int, int]:
    name = name if fields.has(name) else older
    text = fields.text(name)
    match = _POINT.fullmatch(_TAGS.sub(" ", text).strip()) if len(text) < 200 else None
    if match is None:
        raise ActionError(f"{fields.name}: {name} is {text[:60]!r}; it must be '<point>x y</point>' or '(x,y)'")
    numbers = [float(number) for number in match.groups() if number is not None]
    # Of a box, the middle.
    x, y = numbers if len(numbers) == 2 else [(numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2]
    return space.to_relative(x, y)


def _read_keys(text: str) -> str:
    names = text.split() or [text]
    try:
        return join_keys(names if len(names) > 1 else split_keys(names[0]))
    except ValueError as error:
        raise ActionError(f"{NAME} hotkey: {error}") from None
