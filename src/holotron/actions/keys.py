"""The names of keys: one spelling for each, and the many ways in which others spell them."""

from __future__ import annotations

MODIFIERS = ("Control", "Alt", "Shift", "Meta")
NAMED_KEYS = (
    "Enter",
    "Tab",
    "Escape",
    "Backspace",
    "Delete",
    "Insert",
    "Home",
    "End",
    "PageUp",
    "PageDown",
    "ArrowUp",
    "ArrowDown",
    "ArrowLeft",
    "ArrowRight",
    "Space",
    "CapsLock",
    "NumLock",
    "ScrollLock",
    "PrintScreen",
    "Pause",
    "ContextMenu",
    *(f"F{number}" for number in range(1, 13)),
)
# What a policy may write for `keys`; parse_keys accepts more, and every text of this form among it.
KEYS_PATTERN = (
    rf"^({')?('.join(rf'{name}[+]' for name in MODIFIERS)})?"
    rf"([!-~]|{'|'.join((*NAMED_KEYS[:21], *MODIFIERS))}|F[1-9]|F1[0-2])$"
)

_ALIASES = {
    "ctrl": "Control",
    "ctl": "Control",
    "controlormeta": "Control",
    "cmd": "Meta",
    "command": "Meta",
    "super": "Meta",
    "win": "Meta",
    "windows": "Meta",
    "option": "Alt",
    "opt": "Alt",
    "return": "Enter",
    "kp_enter": "Enter",
    "esc": "Escape",
    "del": "Delete",
    "ins": "Insert",
    "pgup": "PageUp",
    "page_up": "PageUp",
    "prior": "PageUp",
    "pgdn": "PageDown",
    "pgdown": "PageDown",
    "page_down": "PageDown",
    "next": "PageDown",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "spacebar": "Space",
    "caps_lock": "CapsLock",
    "num_lock": "NumLock",
    "scroll_lock": "ScrollLock",
    "print": "PrintScreen",
    "prtsc": "PrintScreen",
    "menu": "ContextMenu",
    "apps": "ContextMenu",
    # Punctuation by name, as X11 and the DOM call it.
    "plus": "+",
    "minus": "-",
    "equal": "=",
    "slash": "/",
    "backslash": "\\",
    "comma": ",",
    "period": ".",
    "semicolon": ";",
    "colon": ":",
    "apostrophe": "'",
    "quote": "'",
    "quotedbl": '"',
    "grave": "`",
    "backquote": "`",
    "bracketleft": "[",
    "bracketright": "]",
    "braceleft": "{",
    "braceright": "}",
    "parenleft": "(",
    "parenright": ")",
    "less": "<",
    "greater": ">",
    "question": "?",
    "exclam": "!",
    "at": "@",
    "numbersign": "#",
    "dollar": "$",
    "percent": "%",
    "asciicircum": "^",
    "ampersand": "&",
    "asterisk": "*",
    "underscore": "_",
    "bar": "|",
    "asciitilde": "~",
}
_BY_SIDE = {
    f"{side}{joint}{name}": key
    for name, key in (("control", "Control"), ("ctrl", "Control"), ("alt", "Alt"), ("shift", "Shift"), ("meta", "Meta"))
    for side, joint in (("left", ""), ("right", ""), ("left", "_"), ("right", "_"))
} | {f"{name}{side}": key for name, key in zip(("control", "alt", "shift", "meta"), MODIFIERS, strict=True)
     for side in ("_l", "_r", "left", "right")}  # fmt: skip
_CODES = {f"key{letter}": letter for letter in "abcdefghijklmnopqrstuvwxyz"} | {f"digit{n}": str(n) for n in range(10)}
_KEYS = {name.lower(): name for name in (*MODIFIERS, *NAMED_KEYS)} | _ALIASES | _BY_SIDE | _CODES


def parse_key(name: str) -> str:
    """The one spelling of a key: a name from the lists above or a single printable character."""
    if len(name) == 1 and name.isprintable() and not name.isspace():
        return name
    key = "Space" if name == " " else _KEYS.get(name.strip().lower())
    if key is None:
        raise ValueError(
            f"there is no key {name[:40]!r}; a key is one character or one of {', '.join((*MODIFIERS, *NAMED_KEYS))}"
        )
    return key


def parse_keys(text: str) -> str:
    """The one spelling of a key press such as "ctrl+a": modifiers in order, then one key. "Control++" presses plus."""
    return join_keys(split_keys(text))


def split_keys(text: str) -> list[str]:
    """The names between the plus signs. A plus where a name must begin is the key itself."""
    names, name = [], ""
    for character in text:
        if character == "+" and name:
            names.append(name)
            name = ""
        else:
            name += character
    return [*names, name] if name or not names else [*names, "+"] if text.endswith("++") else [*names, ""]


def join_keys(names: list[str]) -> str:
    """The spelling of keys pressed together: at most one of them, besides modifiers."""
    keys = [parse_key(name) for name in names]
    modifiers = [key for key in MODIFIERS if key in keys]
    others = [key for key in keys if key not in MODIFIERS]
    if len(others) > 1:
        raise ValueError(
            f"{'+'.join(keys)[:80]!r} presses {len(others)} keys at once; besides modifiers only one can be"
        )
    # With a modifier the case of a letter means nothing, so it has one.
    main = [key.upper() if modifiers and len(key) == 1 and key.isascii() else key for key in others]
    return "+".join(modifiers + main)


def playwright_keys(keys: str) -> str:
    """The same press for Playwright, where Control+A would send a capital A to the page."""
    *modifiers, main = split_keys(keys)
    letter = len(main) == 1 and main.isascii()
    return "+".join([*modifiers, main.lower() if letter and modifiers and "Shift" not in modifiers else main])
