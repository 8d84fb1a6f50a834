"""UI-TARS-1.5: a thought and a call in text, points in pixels of the image as its processor resizes it.

The prompt is the one of the UI-TARS repository; the order of messages, five screenshots and the marks around boxes in
earlier answers are those of its authors' OSWorld agent. Screenshots before the last five are left out altogether.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holotron.agent.chat import Message, trimmed
from holotron.agent.formats.base import (
    ParsedAnswer,
    PolicyFormat,
    Seen,
    Size,
    Taken,
    only,
    with_answers,
    without_thinking,
)
from holotron.agent.formats.image_size import ImageRule
from holotron.agent.formats.texts import filled

if TYPE_CHECKING:
    from holotron.actions.action import Action

UI_TARS_IMAGE = ImageRule(28, 100 * 28 * 28, 16384 * 28 * 28)
_CALLS = {
    "click": '"click(point=\'" point "\')" | "right_single(point=\'" point "\')"',
    "double_click": '"left_double(point=\'" point "\')"',
    "drag": '"drag(start_point=\'" point "\', end_point=\'" point "\')"',
    "press": '"hotkey(key=\'" KEYS "\')"',
    "type": '"type(content=\'" TEXT "\')"',
    "scroll": '"scroll(point=\'" point "\', direction=\'" DIRECTION "\')"',
    "wait": '"wait()"',
    "answer": '"finished(content=\'" TEXT "\')"',
}
_GRAMMAR = r"""start: "Thought: " THOUGHT "\nAction: " call
call: {calls}
point: "<point>" NUMBER " " NUMBER "</point>"
THOUGHT: /[^\n]{1,1000}/
NUMBER: /[0-9]{1,5}/
KEYS: /[!-&(-\[\]-~]{1,16}( [!-&(-\[\]-~]{1,16}){0,2}/
TEXT: /([^'\\\n]|\\[\\'"nt]){0,4000}/
DIRECTION: "down" | "up" | "right" | "left"
"""
_BOX = re.compile(r"(start_box|end_box)='\((\d+),\s*(\d+)\)'")


@dataclass(frozen=True)
class UITarsFormat(PolicyFormat):
    name = "ui-tars"
    windowed = True
    space = "pixels"
    image_rule = UI_TARS_IMAGE
    vocabulary = tuple(_CALLS)

    kinds: tuple[str, ...] = tuple(_CALLS)
    keep_images: int | None = 5

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        look = Message("user", "\n".join(self._remarks(past, forced)), image, image_first=False)
        if past:
            return [look]
        asked = Message("user", filled("ui_tars_user.txt", task=task))
        return [Message("system", "You are a helpful assistant."), asked, look]

    def schema(self, forced: bool = False) -> dict[str, Any]:
        calls = " | ".join(_CALLS[kind] for kind in self._allowed(forced) if kind in _CALLS)
        return {"lark": _GRAMMAR.replace("{calls}", calls)}

    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        from holotron.actions.dialects.uitars import to_uitars

        calls = "\n\n".join(to_uitars(action, self.points(size)))
        return f"Thought: {' '.join(thought.split())}\nAction: {calls}"

    def parse(self, text: str, size: Size | None = None, past: Sequence[Taken] = ()) -> ParsedAnswer:
        from holotron.actions.dialects.uitars import from_uitars, split_reply

        thought, calls = split_reply(without_thinking(text))
        return ParsedAnswer(only(from_uitars(calls, self.points(size)), "UI-TARS"), thought=thought)

    def history(self, messages: Sequence[Message]) -> list[Message]:
        return with_answers(trimmed(messages, self.keep_images, ""), _marked)


def _marked(answer: str) -> str:
    """The call of an answer, its boxes between their special tokens, which decoding left out."""
    return _BOX.sub(r"\1='<|box_start|>(\2,\3)<|box_end|>'", without_thinking(answer))
