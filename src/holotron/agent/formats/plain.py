"""Our own JSON actions: `nano` for small policies, `json` for any chat model under our grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from holotron.agent.chat import Message
from holotron.agent.formats.base import (
    LAST_STEP,
    PAGE_KINDS,
    ParsedAnswer,
    PolicyFormat,
    Seen,
    Size,
    Taken,
    as_text,
    compact,
    load_object,
    outcome,
    secret_names,
)
from holotron.agent.formats.content import find_content
from holotron.agent.formats.taught_size import stretched

if TYPE_CHECKING:
    from holotron.actions.action import Action

USAGE = {
    "click": '{"action":"click","x":…,"y":…} (also "button":"right")',
    "double_click": '{"action":"double_click","x":…,"y":…}',
    "hover": '{"action":"hover","x":…,"y":…}',
    "drag": '{"action":"drag","x":…,"y":…,"to_x":…,"to_y":…}',
    "type": '{"action":"type","text":"…"} (with "x" and "y" to click there first, "clear":true, "enter":true)',
    "press": '{"action":"press","keys":"Enter"} (or "Control+A", "ArrowDown"; with "repeat")',
    "scroll": '{"action":"scroll","direction":"down"} (with "amount" in percent of the view, "x" and "y")',
    "select": '{"action":"select","x":…,"y":…,"option":"…"} (a drop-down list)',
    "goto": '{"action":"goto","url":"…"}',
    "back": '{"action":"back"}',
    "forward": '{"action":"forward"}',
    "refresh": '{"action":"refresh"}',
    "wait": '{"action":"wait","seconds":…}',
    "new_tab": '{"action":"new_tab"}',
    "switch_tab": '{"action":"switch_tab","index":…}',
    "close_tab": '{"action":"close_tab"}',
    "answer": '{"action":"answer","text":"…"} (the task is done; the text is what was asked for, or empty)',
    "infeasible": '{"action":"infeasible","reason":"…"} (the task cannot be done)',
}


@dataclass(frozen=True)
class _ActionJsonFormat(PolicyFormat):
    """Answers are our actions as JSON, alone or in the field `action`."""

    reasons: ClassVar[bool] = False

    def parse(self, text: str, size: Size | None = None, past: Sequence[Taken] = ()) -> ParsedAnswer:
        from holotron.actions.action import ActionError, parse_action

        value = load_object(text)
        inner = value.get("action")
        if isinstance(inner, str):  # the bare action, even where more was asked for
            return ParsedAnswer(parse_action(value))
        if not isinstance(inner, dict):
            raise ActionError("the answer has no action; it must be an object with the field 'action'")
        return ParsedAnswer(parse_action(inner), as_text(value.get("note")), as_text(value.get("thought")))

    def schema(self, forced: bool = False) -> dict[str, Any]:
        return _schema(self._allowed(forced), self.reasons)


@dataclass(frozen=True)
class NanoFormat(_ActionJsonFormat):
    """Small policies: the task once, then screens alone, and the bare action in answer.

    Every word that a small model need not read is capacity and time.
    """

    name = "nano"

    kinds: tuple[str, ...] = PAGE_KINDS
    size: Size | None = (1024, 768)

    def instruction(self, task: str, past: Sequence[Taken], seen: Seen) -> str:
        """The task with what is to be typed for each secret that it does not mention itself."""
        mentions = {name: f"{{{{secret:{name}}}}}" for name in secret_names(past, seen)}
        return task + "".join(f', {name} "{mention}"' for name, mention in mentions.items() if mention not in task)

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        return [Message("user", "" if past else f"Task: {task}", self.shown(image))]

    def shown(self, image: bytes | None) -> bytes | None:
        """Of a small screen what is not ground: what it was taught on has no margins. A page at a size taught."""
        if image is None:
            return None
        content = find_content(image)
        return stretched(image) if content is None else content.part.place_png(image)

    def to_screen(self, action: Action, image: bytes | None) -> Action:
        content = find_content(image)
        return action if content is None else content.to_screen(action)

    def from_screen(self, action: Action, image: bytes | None) -> Action:
        content = find_content(image)
        return action if content is None else content.from_screen(action)

    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        from holotron.actions.action import to_json

        return to_json(action)


@dataclass(frozen=True)
class JsonFormat(_ActionJsonFormat):
    """Any chat model under our grammar: a note that outlives dropped screenshots and a thought, then the action."""

    name = "json"
    reasons: ClassVar[bool] = True

    keep_images: int | None = 3

    def instruction(self, task: str, past: Sequence[Taken], seen: Seen) -> str:
        """The task alone: all notices are told with the screenshot."""
        return task

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        lines = [outcome(past[-1]) if past else f"Task: {task}"]
        if seen.url:
            lines.append(f"Page: {seen.title} ({seen.url})" if seen.title else f"Page: {seen.url}")
        if len(seen.tabs) > 1:
            lines.append("Tabs: " + "; ".join(map(str, seen.tabs)))
        lines += [f"Notice: {notice}" for notice in seen.notices]
        if forced and self._can_answer:
            lines.append(LAST_STEP)
        question = Message("user", "\n".join(lines), image)
        return [question] if past else [Message("system", self.system()), question]

    def system(self) -> str:
        lines = [
            "You use a computer for somebody. At each step you see a screenshot and choose one action.",
            "Points are whole numbers from 0 to 1000 of the screenshot's width (x) and height (y).",
            "Actions:",
            *(f"- {USAGE[kind]}" for kind in self.kinds),
        ]
        if self.reasons:
            lines.append(
                'Answer with JSON: {"note":"what to remember of this screenshot","thought":"what to do and why",'
                '"action":{…}}. Old screenshots are taken away; notes stay.'
            )
        else:
            lines.append("Answer with the JSON of the action alone.")
        return "\n".join(lines)

    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        from holotron.actions.action import to_dict, to_json

        if not self.reasons:
            return to_json(action)
        return compact({"note": note, "thought": thought, "action": to_dict(action)})


@dataclass(frozen=True)
class BareJsonFormat(JsonFormat):
    """The same without note and thought."""

    name = "json-bare"
    reasons = False


@cache
def _schema(kinds: tuple[str, ...], reasons: bool) -> dict[str, Any]:
    """One object for all who ask alike, at every step: what is made of it need not be made again."""
    from holotron.actions.schema import action_schema

    action = action_schema(kinds)
    if not reasons:
        return action
    texts = {"note": {"type": "string", "maxLength": 500}, "thought": {"type": "string", "maxLength": 1000}}
    properties = texts | {"action": action}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
