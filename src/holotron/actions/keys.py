"""The names of keys: one spelling for each, and the many ways in which others spell them."""

from __future__ import annotations

from collections.abc import Sequence

MODIFIERS = ("Control", "Alt", "Shift", "Meta")
_FUNCTION_KEYS = tuple(f"F{number}" for number in range(1, 13))
_EDITING_KEYS = (
    "Enter", "Tab", "Escape", "Backspace", "Delete", "Insert", "Home", "End", "PageUp", "PageDown",
    "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Space", "CapsLock", "NumLock", "ScrollLock",
    "PrintScreen", "Pause", "ContextMenu",
)  # fmt: skip
NAMED_KEYS = (*_EDITING_KEYS, *_FUNCTION_KEYS)
# What a policy may write for `keys`; parse_keys accepts more, and every text of this form among it.
KEYS_PATTERN = (
    rf"^({')?('.join(rf'{name}[+]' for name in MODIFIERS)})?"
    rf"([!-~]|{'|'.join((*_EDITING_KEYS, *MODIFIERS))}|F[1-9]|F1[0-2])$"
)

_OTHER_NAMES = {
    "Control": "ctrl ctl controlormeta",
    "Meta": "cmd command super win windows",
    "Alt": "option opt",
    "Enter": "return kp_enter",
    "Escape": "esc",
    "Delete": "del",
    "Insert": "ins",
    "PageUp": "pgup page_up prior",
    "PageDown": "pgdn pgdown page_down next",
    "ArrowUp": "up",
    "ArrowDown": "down",
    "ArrowLeft": "left",
    "ArrowRight": "right",
    "Space": "spacebar",
    "CapsLock": "caps_lock",
    "NumLock": "num_lock",
    "ScrollLock": "scroll_lock",
    "PrintScreen": "print prtsc",
    "ContextMenu": "menu apps",
    # Punctuation by name, as X11 and the DOM call it.
    "+": "plus", "-": "minus", "=": "equal", "/": "slash", "\\": "backslash", ",": "comma", ".": "period",
    ";": "semicolon", ":": "colon", "'": "apostrophe quote", '"': "quotedbl", "`": "grave backquote",
    "[": "bracketleft", "]": "bracketright", "{": "braceleft", "}": "braceright", "(": "parenleft", ")": "parenright",
    "<": "less", ">": "greater", "?": "question", "!": "exclam", "@": "at", "#": "numbersign", "$": "dollar",
    "%": "percent", "^": "asciicircum", "&": "ampersand", "*": "asterisk", "_": "underscore", "|": "bar",
    "~": "asciitilde",
}  # fmt: skip
_ALIASES = {alias: key for key, aliases in _OTHER_NAMES.items() for alias in aliases.split()}
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


def join_keys(names: Sequence[str]) -> str:
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
