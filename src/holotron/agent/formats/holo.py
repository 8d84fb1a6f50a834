"""Holo1, Holo1.5 and Holo2 as web navigators: the contract that H Company's cookbook publishes.

A step is `{note, thought, action}`. The cookbook shows one step; later ones go on in the same conversation, with the
model's own JSON between them and the last three screenshots, as Surfer-H keeps them. Holo1 and Holo1.5 count in pixels
of an image that is resized before it is sent, Holo2 in 0–1000. Thinking is off: the answer is held to its schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holotron.agent.chat import Message, trimmed
from holotron.agent.formats.base import (
    ParsedAnswer,
    PolicyFormat,
    Seen,
    Size,
    Taken,
    as_text,
    compact,
    load_object,
    with_answers,
    without_thinking,
)
from holotron.agent.formats.image_size import ImageRule
from holotron.agent.formats.texts import contract_json, filled, tightened

if TYPE_CHECKING:
    from holotron.actions.action import Action
    from holotron.actions.coordinates import SpaceKind

OMITTED = "[Image omitted by context cleaning]"
HOLO1_IMAGE = ImageRule(28, 56 * 56, 1280 * 28 * 28)
HOLO2_IMAGE = ImageRule(32, 64 * 32 * 32, 16384 * 32 * 32)
# The tool of each kind of action, as the schema's definitions are called, in the schema's order.
_TOOLS = {
    "click": "ClickElementAction",
    "type": "WriteElementAction",
    "scroll": "ScrollAction",
    "back": "GoBackAction",
    "refresh": "RefreshAction",
    "wait": "WaitAction",
    "answer": "AnswerAction",
    "goto": "GotoAction",
}
_KINDS = tuple(_TOOLS)


@dataclass(frozen=True)
class Holo1Format(PolicyFormat):
    name = "holo1"
    space: ClassVar[SpaceKind] = "pixels"
    image_rule: ClassVar[ImageRule | None] = HOLO1_IMAGE
    sends_resized = True
    vocabulary = _KINDS
    dated = True
    windowed = True

    kinds: tuple[str, ...] = _KINDS
    keep_images: int | None = 3

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        before = "".join(f"{remark}\n" for remark in self._remarks(past, forced))
        before += "" if past else f"<task>\n{task}\n</task>\n"
        question = Message(
            "user",
            f"{before}<observation step={len(past) + 1}>\n<screenshot>\n",
            self.shown(image),
            image_first=False,
            tail="\n</screenshot>\n\n</observation>\n",
        )
        return [question] if past else [Message("system", self.system()), question]

    def system(self) -> str:
        # The cookbook writes the schema as Python shows a dictionary.
        return filled("holo_system.txt", date=self.date or "unknown", schema=str(self._step_schema(self.kinds)))

    def schema(self, forced: bool = False) -> dict[str, Any]:
        return tightened(self._step_schema(self._allowed(forced)))

    def _step_schema(self, kinds: Sequence[str]) -> dict[str, Any]:
        schema = contract_json("holo_step.json")
        wanted = {_TOOLS[kind] for kind in kinds if kind in _TOOLS}
        if "goto" in kinds:  # to the address where the task began
            wanted.add("RestartAction")
        keep_tools(schema, schema["properties"]["action"], wanted)
        return schema

    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        from holotron.actions.dialects.holo import to_holo

        [call] = to_holo(action, self.points(size), "browser")
        return compact({"note": note, "thought": thought, "action": call})

    def parse(self, text: str, size: Size | None = None, past: Sequence[Taken] = ()) -> ParsedAnswer:
        from holotron.actions.action import ActionError
        from holotron.actions.dialects.holo import from_holo

        value = load_object(without_thinking(text))
        call = value.get("action")
        if not isinstance(call, dict):
            raise ActionError("the answer has no action; it must be an object with the field 'action'")
        start = past[0].observation.url if past else None
        [action] = from_holo([call], self.points(size), start)
        return ParsedAnswer(action, as_text(value.get("note")), as_text(value.get("thought")))

    def history(self, messages: Sequence[Message]) -> list[Message]:
        return with_answers(trimmed(messages, self.keep_images, OMITTED), without_thinking)


@dataclass(frozen=True)
class Holo15Format(Holo1Format):
    name = "holo1.5"


@dataclass(frozen=True)
class Holo2Format(Holo1Format):
    """The same step with points in 0–1000. The server's own processor resizes the image (`HOLO2_IMAGE`)."""

    name = "holo2"
    space = "relative"
    image_rule = None
    sends_resized = False
    template: ClassVar[Mapping[str, Any]] = {"thinking": False}

    def _step_schema(self, kinds: Sequence[str]) -> dict[str, Any]:
        schema = super()._step_schema(kinds)
        for tool in schema["$defs"].values():
            for axis in {"x", "y"} & tool["properties"].keys():
                tool["properties"][axis] = {
                    "description": f"The {axis} coordinate, normalized between 0 and 1000.",
                    "maximum": 1000,
                    "minimum": 0,
                    "title": axis.upper(),
                    "type": "integer",
                }
        return schema


def keep_tools(
    schema: dict[str, Any], choice: dict[str, Any], wanted: AbstractSet[str], *, also: Sequence[str] = ()
) -> None:
    """Leave out of a published schema all tools but some. also: definitions that are no tools."""
    choice["anyOf"] = [tool for tool in choice["anyOf"] if tool["$ref"].rsplit("/", 1)[-1] in wanted]
    for name in list(schema["$defs"]):
        if name not in wanted and name not in also:
            del schema["$defs"][name]
