"""The computer tools of OpenAI and Anthropic: the model writes the provider's own items, which the dialects read.

What the provider is told (tools, ids, screenshots as results) is the business of its chat (`openai_computer`,
`anthropic_computer`); here is what a step adds, and what an answer means.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holotron.agent.chat import Message
from holotron.agent.formats.base import ParsedAnswer, PolicyFormat, Seen, Size, Taken, load_object, only

if TYPE_CHECKING:
    from holotron.actions.action import Action
    from holotron.actions.coordinates import SpaceKind

_KINDS = ("click", "double_click", "hover", "drag", "type", "press", "scroll", "wait", "answer", "infeasible")


@dataclass(frozen=True)
class _ComputerToolFormat(PolicyFormat):
    space: ClassVar[SpaceKind] = "pixels"
    vocabulary = _KINDS

    kinds: tuple[str, ...] = _KINDS

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        lines = [*([] if past else [task]), *self._remarks(past, forced)]
        return [Message("user", "\n".join(lines), image, image_first=False)]

    def schema(self, forced: bool = False) -> dict[str, Any]:
        return {}  # the provider holds its tool to its form


@dataclass(frozen=True)
class OpenAIComputerFormat(_ComputerToolFormat):
    """An answer is an item of the Responses API: a computer call with one action, or a message."""

    name = "openai-computer"

    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        from holotron.actions.dialects.openai import to_openai

        return json.dumps(to_openai(action, self.points(size)), ensure_ascii=False)

    def parse(self, text: str, size: Size | None = None, past: Sequence[Taken] = ()) -> ParsedAnswer:
        from holotron.actions.dialects.openai import from_openai

        value = load_object(text)
        thought = str(value.pop("thought", ""))
        return ParsedAnswer(only(from_openai(value, self.points(size)), "OpenAI's computer tool"), thought=thought)


@dataclass(frozen=True)
class AnthropicComputerFormat(_ComputerToolFormat):
    """An answer is `{"thought", "inputs"}` with inputs of the computer tool, or `{"answer"}` or `{"refusal"}`."""

    name = "anthropic-computer"

    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        from holotron.actions.action import Answer, Infeasible
        from holotron.actions.dialects.anthropic import to_anthropic

        if isinstance(action, Answer):
            return json.dumps({"answer": action.text}, ensure_ascii=False)
        if isinstance(action, Infeasible):
            return json.dumps({"refusal": action.reason}, ensure_ascii=False)
        inputs = to_anthropic(action, self.points(size))
        return json.dumps({"thought": thought, "inputs": inputs}, ensure_ascii=False)

    def parse(self, text: str, size: Size | None = None, past: Sequence[Taken] = ()) -> ParsedAnswer:
        from holotron.actions.action import Answer, Infeasible
        from holotron.actions.dialects.anthropic import from_anthropic

        value = load_object(text)
        if "answer" in value:
            return ParsedAnswer(Answer(text=str(value["answer"])))
        if "refusal" in value:
            return ParsedAnswer(Infeasible(reason=str(value["refusal"])))
        actions = from_anthropic(value.get("inputs") or [], self.points(size))
        return ParsedAnswer(only(actions, "Anthropic's computer tool"), thought=str(value.get("thought") or ""))
