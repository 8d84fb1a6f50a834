"""What a model thinks before it answers: told apart from the answer, and given room in front of a form."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holotron.model.text.tokenizer import Tokenizer
from holotron.server.tool_markup import SPACE

FIRST_TOKENS = 64  # in which a tag that opens an answer ends


class Thinking(StrEnum):
    """Where an answer begins: among thoughts, where thoughts may be opened, or after them."""

    INSIDE = "inside"
    POSSIBLE = "possible"
    OVER = "over"


@dataclass(frozen=True)
class ReasoningDialect:
    """How a family of models marks its thoughts."""

    opening: str
    closing: str

    def begins(self, tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> Thinking:
        """Where the answer to a prompt begins, by what its template wrote last; people's words are not among that."""
        last = next((at for at in range(len(prompt_ids) - 1, -1, -1) if tokenizer.is_hidden(prompt_ids[at])), -1)
        text = tokenizer.decode(prompt_ids[last + 1 :], skip_special=False)
        opened, closed = text.rfind(self.opening), text.rfind(self.closing)
        if opened > closed:
            return Thinking.INSIDE
        return Thinking.OVER if closed >= 0 or last < 0 else Thinking.POSSIBLE

    def count(self, tokenizer: Tokenizer, thinking: Thinking, token_ids: Sequence[int]) -> int:
        """How many tokens of an answer are thoughts, their tags included."""
        if thinking is Thinking.OVER:
            return 0
        if thinking is Thinking.POSSIBLE:
            beginning = tokenizer.decode(token_ids[:FIRST_TOKENS], skip_special=False)
            if not beginning.lstrip(SPACE).startswith(self.opening):
                return 0
        if (closing := tokenizer.markup.get(self.closing)) is not None:
            return token_ids.index(closing) + 1 if closing in token_ids else len(token_ids)
        # The shortest beginning that has the tag in it.
        ends = range(1, len(token_ids) + 1)
        found = bisect_left(
            ends, True, key=lambda end: self.closing in tokenizer.decode(token_ids[:end], skip_special=False)
        )
        return min(found + 1, len(token_ids))

    def grammar_around(self, thinking: Thinking, token_ids: Mapping[str, int]) -> str:
        """A Lark grammar of thoughts before @body; empty where there are none. Tags are tokens where they can be."""
        if thinking is Thinking.OVER:
            return ""
        opening, closing = (f"<[{token_ids[tag]}]>" if tag in token_ids else "" for tag in (self.opening, self.closing))
        escaped = re.sub(r"([/\[\].])", r"\\\1", self.closing)
        thought = f"/(?s:.*)/ & ~/(?s:.*){escaped}(?s:.*)/"
        thought = thought if closing else f"({thought}) {json.dumps(self.closing)}"
        thoughts = f"THOUGHT {closing} SPACE?"
        if thinking is Thinking.POSSIBLE:
            thoughts = f"({opening or json.dumps(self.opening)} {thoughts})?"
        return f"start: {thoughts} @body\nTHOUGHT: {thought}\nSPACE: /[ \\n]{{1,4}}/\n"


DIALECTS = (ReasoningDialect("<think>", "</think>"), ReasoningDialect("[THINK]", "[/THINK]"))


def detect_reasoning(template_source: str) -> ReasoningDialect | None:
    """The dialect that a chat template knows thoughts in, if it knows any."""
    return next((dialect for dialect in DIALECTS if dialect.closing in template_source), None)


class ReasoningSplitter:
    """Splits a streamed text into thoughts and answer; however it is cut, the sum is the same.

    Whitespace at the ends of the thoughts, and before the answer that follows them, belongs to neither.
    """

    def __init__(self, dialect: ReasoningDialect, thinking: Thinking) -> None:
        self._dialect = dialect
        self._thinking = thinking
        self._held = ""  # what could still be a tag, or whitespace at an end
        self._begun = thinking is Thinking.OVER  # whether anything but whitespace was told since the last tag

    def push(self, text: str, last: bool = False) -> tuple[str, str]:
        """The thoughts and the answer that are certain with this piece; with the last one, all that is left."""
        text, self._held = self._held + text, ""
        if self._thinking is Thinking.POSSIBLE:
            found = text.lstrip(SPACE)
            if not last and self._dialect.opening.startswith(found):
                self._held = text
                return "", ""
            is_open = found.startswith(self._dialect.opening)
            self._thinking = Thinking.INSIDE if is_open else Thinking.OVER
            self._begun = not is_open
            text = found.removeprefix(self._dialect.opening) if is_open else text
        if self._thinking is Thinking.OVER:
            return "", text if self._begun else self._answer(text)
        thought, tag, rest = text.partition(self._dialect.closing)
        if not tag and not last:
            thought, self._held = _before(thought, self._dialect.closing)
        thought = thought if self._begun else thought.lstrip(SPACE)
        self._begun = self._begun or bool(thought)
        if not tag:
            return thought.rstrip(SPACE) if last else thought, ""
        self._thinking, self._begun = Thinking.OVER, False
        return thought.rstrip(SPACE), self._answer(rest)

    def _answer(self, text: str) -> str:
        """The beginning of an answer that follows thoughts."""
        text = text.lstrip(SPACE)
        self._begun = bool(text)
        return text


def _before(text: str, tag: str) -> tuple[str, str]:
    """What stands before whitespace and the beginning of a tag at the end, and those."""
    starts = range(max(0, len(text) - len(tag) + 1), len(text))
    end = next((start for start in starts if tag.startswith(text[start:])), len(text))
    end = len(text[:end].rstrip(SPACE))
    return text[:end], text[end:]
