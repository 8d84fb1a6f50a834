"""The spellings that browsers, servers and programs make of a text, as one regular expression."""

from __future__ import annotations

import base64
import re
from html.entities import codepoint2name

# Shorter texts are looked for in base64 only as a whole: their parts are found in any long line.
SHORTEST_PART = 6
DIGIT, PADDING = "[A-Za-z0-9+/_-]", "(?:=|%3[dD])*"
JSON_LETTERS = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def spellings(value: str) -> str:
    """A pattern without groups of its own: the text itself, or percent-, HTML-, JSON- or base64-encoded, also mixed.

    Blanks at its ends are not part of it, and a run of blanks matches any other: titles and pages change both.
    """
    words = value.split() or [value]
    spelled = f"{_blank()}+".join("".join(map(_character, word)) for word in words)
    return "|".join([spelled, *_base64(value)])


def _character(character: str) -> str:
    code = ord(character)
    percent = "".join(_percent(byte) for byte in character.encode("utf-8", "surrogatepass"))
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    ways = [
        percent,
        # JSON and other quotations, at any depth; JavaScript's `escape` writes the same with a percent sign.
        "".join(rf"(?:\\+|%)u{_hex(pair)}" for pair in pairs),
        # & is &amp; in HTML, also where it begins another.
        rf"&(?:amp;)*#(?:0*{code}|[xX]0*{_hex(f'{code:x}')})(?:;|(?![0-9a-fA-F]))",
    ]
    if not character.isalnum():
        ways.append(rf"\\+{re.escape(character)}")
    if code < 256:
        ways.append(rf"\\+x{_hex(f'{code:02x}')}")
    if name := codepoint2name.get(code) or {"'": "apos"}.get(character):
        ways.append(f"&(?:amp;)*{name};")
    if character in JSON_LETTERS:
        ways.append(rf"\\+{JSON_LETTERS[character]}")
    # Last: backslashes, % and & begin the others.
    return f"(?:{'|'.join([*ways, re.escape(character)])})"


def _blank() -> str:
    return rf"(?:\s|\+|&nbsp;|{'|'.join(_character(blank) for blank in ' ' + chr(10) + chr(9) + chr(13) + chr(160))})"


def _percent(byte: int) -> str:
    """One byte, its percent sign encoded any number of times."""
    return f"%(?:25)*{_hex(f'{byte:02x}')}"


def _hex(digits: str) -> str:
    """Hexadecimal digits, small or large."""
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _base64(value: str) -> list[str]:
    data = value.encode("utf-8", "surrogatepass")
    if len(data) < SHORTEST_PART:
        whole = _digits(base64.b64encode(data).decode().rstrip("="))
        return [f"(?<!{DIGIT}){whole}(?!{DIGIT}){PADDING}"]
    found = []
    for before in range(3):  # a text inside another begins at any of three places
        digits = base64.b64encode(bytes(before) + data).decode()
        first, last = (before * 8 + 5) // 6, (before + len(data)) * 8 // 6
        # The digits at its ends also tell of what stands beside it, and go with it.
        ends = [f"{DIGIT}?" if shared else "" for shared in (before, (before + len(data)) % 3)]
        found.append(f"{ends[0]}{_digits(digits[first:last])}{ends[1]}{PADDING}")
    return found


def _digits(text: str) -> str:
    """Digits of base64 in both alphabets, also percent-encoded."""
    return text.replace("+", "(?:[+-]|%2[bB])").replace("/", "(?:[/_]|%2[fF])")
