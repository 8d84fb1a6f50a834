"""Tool calls: the dialects in which models write them, a splitter for streamed text, and a check of tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holotron.server import tool_markup as markup
from holotron.server.tool_markup import SPACE, Broken, Scan, Schema, Tool, ToolCall

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class ToolDialect:
    """How a family of models marks its calls."""

    name: str
    opening: str
    closing: str
    scan: Callable[[str], Scan]
    read: Callable[[str, Mapping[str, Tool]], list[ToolCall]]
    # Whether the template writes line breaks around calls, so that whitespace before one is no content.
    spaced: bool


class ToolSplitter:
    """Splits a streamed text into content and calls; however it is cut, the sum is the same.

    A broken block becomes content, and the search goes on at the last opening tag in it: a model that starts over
    is understood, and no letter is looked at more than a few times.
    """

    def __init__(self, dialect: ToolDialect, tools: Sequence[Tool]) -> None:
        self._dialect = dialect
        self._tools = {tool["function"]["name"]: tool for tool in tools}
        self._matched = 0  # letters of an opening tag, while none is open
        self._scan: Scan | None = None
        self._block: list[str] = []
        self._space: list[str] = []  # whitespace that goes with a call, should one follow
        self._after_call = False
        self._content: list[str] = []
        self._calls: list[ToolCall] = []

    def push(self, text: str, last: bool = False) -> tuple[str, list[ToolCall]]:
        """The content and the calls that are certain with this piece of text.

        With the last piece that is everything: an unfinished call is content. The splitter is used up.
        """
        self._consume(text)
        if last:
            while self._scan is not None:
                self._consume(self._break_block())
            self._emit(self._dialect.opening[: self._matched])
            if not self._after_call:
                self._content += self._space
        content, calls = "".join(self._content), self._calls
        self._content, self._calls = [], []
        return content, calls

    def _consume(self, text: str) -> None:
        todo = [(text, 0)]
        while todo:
            text, at = todo.pop()
            while at < len(text):
                if self._scan is None:
                    at = self._seek(text, at)
                    continue
                at, whole = self._advance(text, at)
                if not whole:
                    todo += [(text, at), (self._break_block(), 0)]
                    break

    def _seek(self, text: str, at: int) -> int:
        """Goes on to the opening tag; it has only one "<", so that a mismatch can only start over."""
        opening = self._dialect.opening
        if self._matched == 0:
            start = text.find("<", at)
            end = len(text) if start < 0 else start
            self._emit(text[at:end])
            if start < 0:
                return end
            self._matched, at = 1, start + 1
        while at < len(text) and self._matched < len(opening):
            if text[at] != opening[self._matched]:
                self._emit(opening[: self._matched])
                self._matched = 0
                return at
            self._matched, at = self._matched + 1, at + 1
        if self._matched == len(opening):
            self._matched, self._block = 0, [opening]
            self._scan = self._dialect.scan(self._dialect.closing)
            next(self._scan)
        return at

    def _advance(self, text: str, at: int) -> tuple[int, bool]:
        """Goes on through the block: where it stands then, and whether the block is still sound."""
        assert self._scan is not None
        start, send = at, self._scan.send
        try:
            while at < len(text):
                send(text[at])
                at += 1
        except StopIteration:
            self._block.append(text[start : at + 1])
            self._end_block()
            return at + 1, True
        except Broken:
            self._block.append(text[start:at])
            return at, False
        self._block.append(text[start:])
        return at, True

    def _end_block(self) -> None:
        block = "".join(self._block)
        self._scan = None
        try:
            body = block[len(self._dialect.opening) : -len(self._dialect.closing)]
            calls = self._dialect.read(body, self._tools)
        except (ValueError, LookupError, RecursionError):
            calls = []
        if not calls:
            self._emit(block)
            return
        if not self._dialect.spaced and not self._after_call:
            self._content += self._space
        self._space = []
        self._after_call = True
        self._calls += calls

    def _break_block(self) -> str:
        """Gives up the open block. What could still be another opening tag is returned, to be looked at again."""
        block = "".join(self._block)
        self._scan = None
        opening = self._dialect.opening
        again = block.rfind(opening, 1)
        if again < 0:
            again = max(1, len(block) - len(opening) + 1)
        self._emit(block[:again])
        return block[again:]

    def _emit(self, text: str) -> None:
        solid = text.rstrip(SPACE)
        if solid:
            self._content += [*self._space, solid]
            self._space = []
            self._after_call = False
        if len(solid) < len(text):
            self._space.append(text[len(solid) :])


NEMOTRON = ToolDialect("nemotron", "<TOOLCALL>", "</TOOLCALL>", markup.scan_json, markup.read_json_calls, spaced=False)
HERMES = ToolDialect("hermes", "<tool_call>", "</tool_call>", markup.scan_json, markup.read_json_calls, spaced=True)
XML = ToolDialect("xml", "<tool_call>", "</tool_call>", markup.scan_xml, markup.read_xml_calls, spaced=True)


def detect_dialect(template_source: str) -> ToolDialect | None:
    """The dialect that a chat template writes calls in, or None where it writes none that is known."""
    if NEMOTRON.opening in template_source:
        return NEMOTRON
    if HERMES.opening in template_source:
        return XML if "<function=" in template_source else HERMES
    return None


def check_tools(tools: Sequence[Tool]) -> None:
    """Raises ValueError, with the place and the field, where tools of a valid form make no sense."""
    seen: dict[str, int] = {}
    for position, tool in enumerate(tools):
        place = f"tools[{position}].function"
        name = tool["function"]["name"]
        if not NAME.fullmatch(name):
            raise ValueError(f"{place}.name must be 1 to 64 letters, digits, '_', '.' or '-', not {_shown(name)}")
        if name in seen:
            raise ValueError(f"{place}.name is {name!r}, the name of tools[{seen[name]}] already")
        seen[name] = position
        _check_parameters(tool["function"].get("parameters", {}), f"{place}.parameters")


def _check_parameters(schema: Schema, place: str) -> None:
    if schema.get("type", "object") != "object":
        raise ValueError(f"{place}.type must be 'object', not {_shown(schema['type'])}")
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        raise ValueError(f"{place}.properties must be an object, not {_shown(properties)}")
    for name, value in properties.items():
        if not isinstance(value, Mapping | bool):
            raise ValueError(f"{place}.properties[{_shown(name)}] must be a JSON schema, not {_shown(value)}")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ValueError(f"{place}.required must be a list of names, not {_shown(required)}")


def _shown(value: object) -> str:
    return repr(value)[:80]
