"""OpenAI's computer tool: items of the Responses API, points in pixels of the screenshot.

One action is one item: a `computer_call` (with `actions` where it takes several), a message for the answer, a refusal
for the infeasible. Lost there and back: `element`; the seconds of a wait (it means 2); a selected option comes back as
text with Enter; a point by pixel rounding; navigation goes by keys (Alt+ArrowLeft is back) and such keys come back as
navigation; a scroll point in the very middle is left out; of a dragged path only the ends are kept.
"""

from __future__ import annotations

from typing import Any

from holotron.actions import action as a
from holotron.actions.action import Action, ActionError
from holotron.actions.coordinates import Space
from holotron.actions.dialects.fields import (
    Fields,
    Inexpressible,
    as_object,
    build,
    from_scroll_pixels,
    inexpressible,
    off_middle,
    scroll_point,
    to_scroll_pixels,
    to_xy,
)
from holotron.actions.dialects.sequences import expand, fold
from holotron.actions.keys import MODIFIERS, split_keys

NAME = "OpenAI's computer tool"
WAIT_SECONDS = 2
_KEY_NAMES = {"Control": "CTRL", "Meta": "CMD", "Escape": "ESC"}
_BUTTONS = {"left": "left", "right": "right", "middle": "wheel"}


def to_openai(action: Action, space: Space, call_id: str = "call_0") -> dict[str, Any]:
    """The item that stands for an action."""
    if isinstance(action, a.Answer):
        return _message(call_id, {"type": "output_text", "text": action.text, "annotations": []})
    if isinstance(action, a.Infeasible):
        return _message(call_id, {"type": "refusal", "refusal": action.reason})
    actions = [_one(part, space) for part in expand(action, shortcuts=True)]
    what = {"action": actions[0]} if len(actions) == 1 else {"actions": actions}
    return {
        "type": "computer_call",
        "id": f"item_{call_id}",
        "call_id": call_id,
        **what,
        "pending_safety_checks": [],
        "status": "completed",
    }


def from_openai(item: dict[str, Any], space: Space) -> list[Action]:
    """The actions in an item, or in a bare action of the tool."""
    fields = as_object(NAME, item)
    if fields.get("type") == "message":
        return [_read_message(fields, space)]
    if fields.get("type") == "computer_call":
        several = fields.get("actions")
        listed = several if isinstance(several, list) and several else [fields.get("action")]
    else:
        listed = [fields]
    return fold([action for part in listed for action in _read(as_object(NAME, part), space)], shortcuts=True)


def _message(call_id: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"item_{call_id}",
        "role": "assistant",
        "content": [content],
        "status": "completed",
    }


def _read_message(message: dict[str, Any], space: Space) -> Action:
    content = message.get("content")
    if isinstance(content, str):
        return build("answer", text=content)
    parts = [as_object(NAME, part) for part in content] if isinstance(content, list) else []
    for part in parts:
        if part.get("type") == "refusal":
            return build("infeasible", reason=Fields(NAME, "refusal", part, space).text("refusal"))
    texts = [Fields(NAME, "message", part, space).text("text") for part in parts if part.get("type") == "output_text"]
    if not texts:
        raise ActionError(f"{NAME}: a message without a text is no answer")
    return build("answer", text="".join(texts))


def _one(action: Action, space: Space) -> dict[str, Any]:
    match action:
        case a.Click():
            return {"type": "click", "button": _BUTTONS[action.button], **to_xy(action.x, action.y, space)}
        case a.DoubleClick():
            return {"type": "double_click", **to_xy(action.x, action.y, space)}
        case a.Hover():
            return {"type": "move", **to_xy(action.x, action.y, space)}
        case a.Drag():
            ends = ((action.x, action.y), (action.to_x, action.to_y))
            return {"type": "drag", "path": [to_xy(x, y, space) for x, y in ends]}
        case a.Type():
            return {"type": "type", "text": action.text}
        case a.Press():
            named = ((key, key if len(key) == 1 else key.upper()) for key in split_keys(action.keys))
            return {"type": "keypress", "keys": [_KEY_NAMES.get(key, upper) for key, upper in named]}
        case a.Scroll():
            right, down = to_scroll_pixels(action, space)
            return {"type": "scroll", **to_xy(*scroll_point(action), space), "scroll_x": right, "scroll_y": down}
        case a.Wait():
            return {"type": "screenshot"} if action.seconds == 0 else {"type": "wait"}
    raise inexpressible(action, NAME)


def _read(values: dict[str, Any], space: Space) -> list[Action]:
    kind = values.get("type")
    fields = Fields(NAME, kind, values, space)
    if fields.has("keys") and kind != "keypress" and values["keys"] != []:
        raise Inexpressible(f"{kind} with keys held down", "an action")
    match kind:
        case "click":
            return [_read_click(fields)]
        case "double_click" | "move":
            return [build("hover" if kind == "move" else "double_click", fields.point())]
        case "drag":
            path = values.get("path")
            if not isinstance(path, list) or len(path) < 2:
                raise ActionError(f"{NAME} drag: path must be a list of at least two points")
            start, end = (Fields(NAME, "drag", as_object(NAME, point), space) for point in (path[0], path[-1]))
            return [build("drag", start.point(), end.point())]
        case "type":
            return [build("type", text=fields.text("text"))]
        case "keypress":
            return _read_keys(fields)
        case "scroll":
            right, down = fields.number("scroll_x", 0), fields.number("scroll_y", 0)
            return from_scroll_pixels(right, down, space, off_middle(fields.point(), space))
        case "wait" | "screenshot":
            return [build("wait", seconds=WAIT_SECONDS if kind == "wait" else 0)]
    raise ActionError(f"{NAME} has no action {str(kind)[:40]!r}")


def _read_click(fields: Fields) -> Action:
    button = fields.text("button", "left")
    if button in ("back", "forward"):
        return build(button)
    ours = next((name for name, theirs in _BUTTONS.items() if theirs == button), button)
    return build("click", fields.point(), button=ours)


def _read_keys(fields: Fields) -> list[Action]:
    """Keys pressed together, or one after the other where there are several besides modifiers."""
    keys = [fields.keys([name]) for name in fields.texts("keys")]
    modifiers = [key for key in keys if key in MODIFIERS]
    presses = [[*modifiers, key] for key in keys if key not in MODIFIERS] or [modifiers]
    return [build("press", keys=fields.keys(press)) for press in presses]
