"""Names of keys as people and models write them, turned into the browser's."""

from __future__ import annotations

from holotron.env.errors import ActionFailed

MODIFIERS = {
    "ctrl": "Control",
    "control": "Control",
    "shift": "Shift",
    "alt": "Alt",
    "option": "Alt",
    "meta": "Meta",
    "cmd": "Meta",
    "command": "Meta",
    "win": "Meta",
    "super": "Meta",
}
NAMED = {
    "enter": "Enter",
    "return": "Enter",
    "tab": "Tab",
    "esc": "Escape",
    "escape": "Escape",
    "space": "Space",
    "spacebar": "Space",
    "backspace": "Backspace",
    "del": "Delete",
    "delete": "Delete",
    "insert": "Insert",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "pgup": "PageUp",
    "page_up": "PageUp",
    "pagedown": "PageDown",
    "pgdn": "PageDown",
    "page_down": "PageDown",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "arrowup": "ArrowUp",
    "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
    "plus": "+",
    "minus": "-",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}


def read_keys(text: str) -> str:
    """A chord such as `ctrl+a`, `Shift+Tab` or `Enter` in the browser's spelling; `ActionFailed` if it is none."""
    *held, last = _split(text)
    unknown = [name for name in held if name.lower() not in MODIFIERS]
    if unknown or not last:
        raise ActionFailed(f"{text!r} is no key; write one like Enter, a, or Control+A")
    modifiers = [MODIFIERS[name.lower()] for name in held]
    if len(last) == 1:
        # With Control held, pages expect the small letter unless Shift is held too.
        key = last.upper() if "Shift" in modifiers else last.lower() if modifiers else last
    else:
        key = NAMED.get(last.lower()) or MODIFIERS.get(last.lower(), "")
        if not key:
            raise ActionFailed(f"{last!r} is no key; write one like Enter, ArrowDown, F5 or a single character")
    return "+".join([*dict.fromkeys(modifiers), key])


def _split(text: str) -> list[str]:
    """The names around the plus signs, of which the last may be a plus sign itself."""
    if text == "+" or text.endswith("++"):
        return [*(part.strip() for part in text[:-1].split("+") if part), "+"]
    return [part.strip() if part.strip() else part for part in text.split("+")]
