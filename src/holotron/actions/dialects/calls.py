"""Actions written as function calls, `name(1, 'text', key='value')`: a small parser that runs nothing.

A name may have dots in it, as that of a module's function has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holotron.actions.action import ActionError

MAX_CHARS = 100_000
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<mark>[()\[\],=;])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\n": ""}
_CONSTANTS = {"True": True, "False": False, "None": None}
Token = tuple[str, str]
_ENDS: dict[Token, Token] = {("mark", "["): ("mark", "]"), ("mark", "("): ("mark", ")")}


@dataclass(frozen=True)
class Call:
    """One function call: what it is called with by place and by name."""

    name: str
    positional: list[Any] = field(default_factory=list)
    named: dict[str, Any] = field(default_factory=dict)

    def bind(self, names: Sequence[str]) -> dict[str, Any]:
        """The arguments by name, given the names by place."""
        if len(self.positional) > len(names):
            raise ActionError(f"{self.name} takes {len(names)} arguments, not {len(self.positional)}")
        values = dict(zip(names, self.positional, strict=False))
        for name, value in self.named.items():
            if name not in names or name in values:
                known = ", ".join(names) or "none"
                raise ActionError(f"{self.name} has no argument {name[:40]!r} here; it has {known}")
            values[name] = value
        return values


def parse_calls(text: str) -> list[Call]:
    """The calls of a text, one after the other; blanks, line ends and semicolons may stand between them."""
    if not isinstance(text, str):
        raise ActionError(f"an action is a text, not {type(text).__name__}")
    if len(text) > MAX_CHARS:
        raise ActionError(f"the text has {len(text)} characters; {MAX_CHARS} are the most allowed")
    tokens = _tokens(text)
    calls: list[Call] = []
    position = 0
    while position < len(tokens):
        if tokens[position] == ("mark", ";"):
            position += 1
            continue
        call, position = _call(tokens, position)
        calls.append(call)
    if not calls:
        raise ActionError("there is no call in an empty text")
    return calls


def format_call(name: str, /, *positional: object, **named: object) -> str:
    """A call as text that parse_calls and Python's own parser read alike."""
    values = [_format(value) for value in positional] + [f"{key}={_format(value)}" for key, value in named.items()]
    return f"{name}({', '.join(values)})"


def _format(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return "'" + "".join(c if c.isprintable() else _escape(c) for c in escaped.replace("\t", "\\t")) + "'"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ActionError(f"not a call: {text[position : position + 40]!r} cannot stand at place {position}")
        tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
        position = match.end()
    return tokens


def _call(tokens: list[Token], position: int) -> tuple[Call, int]:
    kind, name = tokens[position]
    if kind != "name" or tokens[position + 1 : position + 2] != [("mark", "(")]:
        raise ActionError(f"not a call: {name[:40]!r} stands where a name and a bracket must")
    call = Call(name)
    position += 2
    while True:
        kind, value = _at(tokens, position)
        if (kind, value) == ("mark", ")"):
            return call, position + 1
        if kind == "name" and _at(tokens, position + 1) == ("mark", "="):
            argument, position = _value(tokens, position + 2)
            if value in call.named:
                raise ActionError(f"{name} is given {value[:40]} twice")
            call.named[value] = argument
        else:
            argument, position = _value(tokens, position)
            if call.named:
                raise ActionError(f"{name}: an argument without a name follows one with a name")
            call.positional.append(argument)
        mark = _at(tokens, position)
        if mark == ("mark", ","):
            position += 1
        elif mark != ("mark", ")"):
            raise ActionError(f"{name}: {mark[1][:40]!r} stands where a comma or a bracket must")


def _value(tokens: list[Token], position: int) -> tuple[Any, int]:
    """A number, a text, a constant, or a list or tuple of those (not of lists: nothing here nests)."""
    end = _ENDS.get(_at(tokens, position))
    if end is None:
        return _atom(*_at(tokens, position)), position + 1
    items: list[Any] = []
    position += 1
    while _at(tokens, position) != end:
        items.append(_atom(*_at(tokens, position)))
        position += 1
        if _at(tokens, position) == ("mark", ","):
            position += 1
        elif _at(tokens, position) != end:
            raise ActionError("a list is not closed")
    return items, position + 1


def _atom(kind: str, source: str) -> Any:
    if kind == "text":
        return _ESCAPE.sub(_unescape, source[1:-1])
    if kind == "number" and len(source) <= 30:
        return float(source) if any(mark in source for mark in ".eE") else int(source)
    if kind == "name" and source in _CONSTANTS:
        return _CONSTANTS[source]
    raise ActionError(f"{source[:40]!r} stands where a text or a number must")


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        # Like Python, an escape that means nothing stays as it was written.
        return _PLAIN_ESCAPES.get(match[4], match[4] if match[4] in "\\'\"" else match[0])
    value = int(code, 16)
    if value > 0x10FFFF:
        raise ActionError(f"{match[0]} is not a character")
    return chr(value)


def _at(tokens: list[Token], position: int) -> Token:
    if position >= len(tokens):
        raise ActionError("the call is not closed")
    return tokens[position]
