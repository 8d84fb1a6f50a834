"""Qwen-VL with its `computer_use` tool: the cookbook's tool, asked as the authors' OSWorld agent asks.

Qwen3-VL is told a screen of 1000x1000; Qwen2.5-VL counts in pixels of the image as its processor resizes it. Five
screenshots are shown: of older steps only their sentence stays, in the list of previous actions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holotron.agent.chat import Message
from holotron.agent.formats.base import (
    ParsedAnswer,
    PolicyFormat,
    Seen,
    Size,
    Taken,
    only,
    pointer_after,
    with_answers,
    without_thinking,
)
from holotron.agent.formats.image_size import ImageRule
from holotron.agent.formats.texts import contract_json, filled

if TYPE_CHECKING:
    from holotron.actions.action import Action

QWEN25_IMAGE = ImageRule(28, 56 * 56, 16384 * 28 * 28)
_INSTRUCTION = """
Please generate the next move according to the UI screenshot, instruction and previous actions.

Instruction: {task}

Previous actions:
{previous}"""
_NONE = "None"
_POINT = {"coordinate": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}}
_TEXT = {"text": {"type": "string", "maxLength": 4000}}
_KEYS = {"keys": {"type": "array", "items": {"type": "string", "maxLength": 16}, "minItems": 1, "maxItems": 4}}
_FAR = {"pixels": {"type": "integer", "minimum": -10_000, "maximum": 10_000}}
# For each kind of action what the tool calls it, and the arguments it then has.
_ARGUMENTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "click": (("left_click", "right_click", "middle_click"), _POINT),
    "double_click": (("double_click",), _POINT),
    "hover": (("mouse_move",), _POINT),
    "drag": (("left_click_drag",), _POINT),
    "type": (("type",), _TEXT),
    "press": (("key",), _KEYS),
    "scroll": (("scroll", "hscroll"), _FAR),
    "wait": (("wait",), {"time": {"type": "integer", "minimum": 0, "maximum": 60}}),
    "answer": (("answer",), _TEXT),
    "infeasible": (("terminate",), {"status": {"enum": ["success", "failure"]}}),
}
_GRAMMAR = r"""start: "Action: " THOUGHT "\n<tool_call>\n" call "\n</tool_call>"
THOUGHT: /[^\n]{1,400}/
call: %json """
_SEPARATORS = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class QwenVLFormat(PolicyFormat):
    name = "qwen-vl"
    vocabulary = tuple(_ARGUMENTS)
    template: ClassVar[Mapping[str, Any]] = {"enable_thinking": False}
    windowed = True

    kinds: tuple[str, ...] = tuple(_ARGUMENTS)
    keep_images: int | None = 5

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        remarks = "\n".join(self._remarks(past, forced))
        if past:
            return [Message("user", remarks, image, image_first=bool(remarks))]
        asked = _INSTRUCTION.format(task=task, previous=_NONE) + (f"\n{remarks}" if remarks else "")
        return [Message("system", self.system((seen.width, seen.height))), Message("user", asked, image)]

    def system(self, size: Size) -> str:
        tool = contract_json("qwen_vl_tool.json")
        space = self.points(size)
        shown = "1000x1000" if space.kind == "relative" else f"{space.width}x{space.height}"
        function = tool["function"]
        function["description"] = function["description"].replace("{resolution}", shown)
        return filled("qwen_vl_system.txt", tool=json.dumps(tool)).rstrip("\n")

    def schema(self, forced: bool = False) -> dict[str, Any]:
        variants = [
            {
                "type": "object",
                "properties": {"action": {"enum": list(names)}, **fields},
                "required": ["action", *fields],
                "additionalProperties": False,
            }
            for names, fields in (_ARGUMENTS[kind] for kind in self._allowed(forced) if kind in _ARGUMENTS)
        ]
        call = {
            "x-guidance": _SEPARATORS,
            "type": "object",
            "properties": {"name": {"const": "computer_use"}, "arguments": {"anyOf": variants}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        return {"lark": _GRAMMAR + json.dumps(call)}

    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        from holotron.actions.dialects.fields import Inexpressible
        from holotron.actions.dialects.qwen import to_qwen

        calls = to_qwen(action, self.points(size))
        if len(calls) != 1:
            raise Inexpressible(f"{action.action} in one call", "Qwen-VL")
        call = json.dumps({"name": "computer_use", "arguments": calls[0]}, ensure_ascii=False)
        return f"Action: {' '.join(thought.split())}\n<tool_call>\n{call}\n</tool_call>"

    def parse(self, text: str, size: Size | None = None, past: Sequence[Taken] = ()) -> ParsedAnswer:
        from holotron.actions.action import ActionError, load_json
        from holotron.actions.dialects.qwen import from_qwen

        answer = without_thinking(text)
        calls: list[Any] = []
        for found in _CALL.findall(answer):
            call = load_json(found)
            if not isinstance(call, dict) or call.get("name") != "computer_use":
                raise ActionError(f"the only tool is computer_use; the answer calls {found[:80]!r}")
            calls.append(call.get("arguments"))
        if not calls:
            raise ActionError(f"the answer has no <tool_call>: {answer[:80]!r}")
        actions = from_qwen(calls, self.points(size), pointer_after(past))
        return ParsedAnswer(only(actions, "Qwen-VL"), thought=_sentence(answer))

    def history(self, messages: Sequence[Message]) -> list[Message]:
        """The last screenshots with the answers to them; of the steps before, the sentences."""
        looks = [index for index, said in enumerate(messages) if said.image is not None]
        dropped = len(looks) - (self.keep_images or len(looks))
        said = with_answers(messages, without_thinking)
        if dropped <= 0:
            return said
        first = looks[dropped]
        sentences = [_sentence(m.text) for m in said[:first] if m.role == "assistant"]
        previous = "\n".join(f"Step {number}: {text}" for number, text in enumerate(sentences, 1))
        asked = said[looks[0]].text.replace(f"Previous actions:\n{_NONE}", f"Previous actions:\n{previous}")
        return [*said[: looks[0]], Message("user", asked, said[first].image), *said[first + 1 :]]


@dataclass(frozen=True)
class Qwen25VLFormat(QwenVLFormat):
    name = "qwen2.5-vl"
    space = "pixels"
    image_rule = QWEN25_IMAGE
    template: ClassVar[Mapping[str, Any]] = {}


def _sentence(answer: str) -> str:
    """What an answer says it does."""
    return answer.partition("<tool_call>")[0].strip().removeprefix("Action:").strip()
