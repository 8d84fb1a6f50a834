"""Lark grammars of texts that models write inside of JSON, where quotes, backslashes and line breaks are escaped.

Every letter that a grammar allows is swapped for its spelling in JSON, in terminals; rules stay as they are.
"""

from __future__ import annotations

import json
import re
from typing import Any

from holotron.engine.grammar import GrammarError

SPECIAL = '"\\' + "".join(map(chr, range(32)))  # what JSON escapes
# Terminals of Lark's library that may have such letters in them; all others of it have none.
COMMON = {
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "NEWLINE": r"(\r?\n)+",
    "ESCAPED_STRING": r'"([^"\\\n]|\\.)*"',
}
PLAIN_COMMON = "DIGIT HEXDIGIT INT SIGNED_INT DECIMAL FLOAT SIGNED_FLOAT NUMBER SIGNED_NUMBER LETTER LCASE_LETTER"
PLAIN_COMMON += " UCASE_LETTER WORD CNAME"

_STRING = r'"(?:\\.|[^"\\\n])*"'
_PIECE = re.compile(
    rf"(?P<comment>//[^\n]*)|(?P<first>{_STRING})\s*\.\.\s*(?P<last>{_STRING})|(?P<text>{_STRING})(?P<exact>i?)"
    r"|/(?P<regex>(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+)/(?P<flags>[a-z]*)"
    r"|(?P<all>%import[^\n]*)|(?P<other>%(?!ignore\b)\w*|@|~(?!\s*\d)|<)"
)
_IMPORT = re.compile(r"%import\s+common\.(\w+)(?:\s*->\s*(\w+))?\s*")
# A group with its flags, a repetition, a set of letters, an escape, or a letter.
_UNIT = re.compile(
    r"\((?:\?(?P<flags>[a-z-]*)(?P<colon>:|\))|\?P?<\w+>)?|(?P<end>\))|\{\d*,?\d*\}|[|*+?^$]"
    r"|(?P<letters>\[\^?\]?(?:\\.|[^\]\\])*\]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|.)",
    re.DOTALL,
)


def lark_in_json(source: str) -> str:
    """The grammar of the same texts as they are written between the quotes of a JSON string."""
    return _PIECE.sub(_piece, source)


def _piece(found: re.Match[str]) -> str:
    if found["comment"]:
        return found[0]
    if found["other"]:
        raise GrammarError(f"the lark grammar uses {found[0]!r}, which calls of this model, in JSON, cannot keep")
    if found["all"]:
        imported = _IMPORT.fullmatch(found[0])
        name = imported[1] if imported else ""
        if name in COMMON:
            return f"{(imported and imported[2]) or name}: /{_escaped(COMMON[name], '')}/"
        if name not in PLAIN_COMMON.split():
            raise GrammarError(f"the lark grammar says {found[0][:80]!r}; write the terminal out instead")
        return found[0]
    if found["regex"]:
        return f"/{_escaped(found['regex'], found['flags'])}/{found['flags']}"
    if found["first"]:
        ends = (_letters(found[end]) for end in ("first", "last"))
        first, last = (f"\\x{ord(end):02x}" if end < "\x80" else end for end in ends)
        return f"/{_escaped(f'[{first}-{last}]', '')}/"
    text = _letters(found["text"])
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    if found["exact"] and written != text:
        raise GrammarError(f"the lark grammar has {found[0][:80]!r}: with i, a text has no letters that JSON escapes")
    return json.dumps(written, ensure_ascii=False) + found["exact"]


def _letters(text: str) -> str:
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise GrammarError(f"the lark grammar has {text[:80]}, which is no text: {error}") from error
    return str(value)


def _escaped(pattern: str, flags: str) -> str:
    """A regular expression of the same texts, escaped."""
    if "x" in flags:
        raise GrammarError("the lark grammar has a regular expression with the flag x; write it without")
    scopes = ["s" in flags]  # whether a dot is a line break, too, in each open group
    made = []
    for unit in _UNIT.finditer(pattern):
        letters = unit["letters"]
        made.append(unit[0] if letters is None else _unit(letters, scopes[-1]))
        if unit["flags"] is not None:
            on, _, off = unit["flags"].partition("-")
            scopes[len(scopes) - (unit["colon"] == ")") :] = [("s" in on or scopes[-1]) and "s" not in off]
        elif unit[0].startswith("(") and letters is None:
            scopes.append(scopes[-1])
        elif unit["end"] and len(scopes) > 1:
            scopes.pop()
    return "".join(made)


def _unit(letters: str, dotall: bool) -> str:
    if letters == ".":
        letters = r"[\s\S]" if dotall else r"[^\n]"
    if re.match(r"\\[pPbBAz]", letters) or re.search(r"\[:|&&|\\[pP]", letters):
        raise GrammarError(f"the lark grammar has {letters[:80]!r} in a regular expression; name the letters instead")
    try:
        special = [letter for letter in SPECIAL if re.fullmatch(letters, letter)]
    except re.error as error:
        raise GrammarError(f"the lark grammar has {letters[:80]!r} in a regular expression: {error}") from error
    if not special:
        return letters
    spelled = "|".join(re.escape(json.dumps(letter)[1:-1]) for letter in special)
    return rf'(?:[{letters}&&[^"\\\x00-\x1f]]|(?-i:{spelled}))'
