"""Pointer and keys in the browser's protocol, as its driver sends them, for pages that are asked without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holotron.actions.action import Button

Event = tuple[str, dict[str, Any]]
MASKS: dict[Button, int] = {"left": 1, "right": 2, "middle": 4}
# Keys by name, with the number that pages know them by.
KEYS = {"Tab": 9, "Enter": 13, "Backspace": 8, "Delete": 46} | {
    f"Arrow{side}": number for number, side in enumerate(("Left", "Up", "Right", "Down"), 37)
}
# Whether a drag from a point may become the browser's own, of a link, a picture or a text, which ends elsewhere.
MAY_BE_NATIVE = """(x, y) => {
  const field = document.activeElement;
  for (let part = document.elementFromPoint(x, y); part; part = part.parentElement)
    if (part.draggable || part.shadowRoot || part.matches("a, image, iframe, embed, object")
        || getComputedStyle(part).webkitUserDrag === "element") return true;
  return !getSelection().isCollapsed || (field?.selectionStart ?? 0) !== (field?.selectionEnd ?? 0);
}"""


def moved(x: float, y: float, *, held: bool = False) -> Event:
    return _mouse("mouseMoved", x, y, "left" if held else "none", int(held), force=0.5 * held)


def pressed(x: float, y: float, button: Button = "left", count: int = 1) -> Event:
    return _mouse("mousePressed", x, y, button, MASKS[button], clickCount=count, force=0.5)


def released(x: float, y: float, button: Button = "left", count: int = 1) -> Event:
    return _mouse("mouseReleased", x, y, button, 0, clickCount=count)


def clicked(x: float, y: float, button: Button = "left", count: int = 1) -> list[Event]:
    """The pointer arrives, and presses a button so many times."""
    events = [moved(x, y)]
    for number in range(1, count + 1):
        events += pressed(x, y, button, number), released(x, y, button, number)
    return events


def wheeled(x: float, y: float, dx: float, dy: float) -> Event:
    return _mouse("mouseWheel", x, y, "none", 0, deltaX=dx, deltaY=dy)


def typed(keys: Sequence[str]) -> list[Event] | None:
    """Keys without modifiers, by name or by what they write; None where only the driver knows one of them."""
    events = list[Event]()
    for key in keys:
        if key in KEYS:
            code, number, text = key, KEYS[key], "\r" if key == "Enter" else ""
        elif len(key) == 1 and key.isascii() and (key.isalnum() or key == " "):
            code = "Space" if key == " " else f"Digit{key}" if key.isdigit() else f"Key{key.upper()}"
            number, text = ord(key.upper()), key
        else:
            return None
        about = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        down = {"type": "keyDown" if text else "rawKeyDown", "text": text, "unmodifiedText": text}
        events += ("Input.dispatchKeyEvent", about | down), ("Input.dispatchKeyEvent", about | {"type": "keyUp"})
    return events


def _mouse(kind: str, x: float, y: float, button: str, buttons: int, **more: float) -> Event:
    return "Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": button, "buttons": buttons, **more}
