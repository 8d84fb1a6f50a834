"""How one family of models is asked for a step and how its answers are read.

What is sent for a step follows from the task and the recorded steps alone, so that training can write from stored
episodes what a session was sent (`conversation`).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from holotron.agent.chat import Message
from holotron.model.errors import ModelError

if TYPE_CHECKING:  # actions need pydantic, which training does without
    from holotron.actions.action import Action
    from holotron.actions.coordinates import SpaceKind

NAME = "policy.json"
Size = tuple[int, int]

_USAGE = {
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
BROWSER_KINDS = tuple(_USAGE)
# One page, no address bar: what the tasks of MiniWoB++ can be solved with.
WIDGET_KINDS = ("click", "double_click", "hover", "drag", "type", "press", "scroll", "select", "wait")
# A page, no address bar and no tabs: what small policies are taught.
PAGE_KINDS = (*WIDGET_KINDS, "answer")


class Seen(Protocol):
    """An observation, live or stored."""

    @property
    def url(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def tabs(self) -> Sequence[object]: ...
    @property
    def notices(self) -> Sequence[str]: ...


class Taken(Protocol):
    """A step that was taken, live or stored. feedback: why its answer was not accepted. forced: it had to answer."""

    @property
    def observation(self) -> Any: ...
    @property
    def action(self) -> object | None: ...
    @property
    def error(self) -> str: ...
    @property
    def feedback(self) -> str | None: ...
    @property
    def forced(self) -> bool: ...


@dataclass(frozen=True)
class ParsedAnswer:
    action: Action
    note: str = ""
    thought: str = ""


@dataclass(frozen=True)
class PolicyFormat(ABC):
    """kinds: the actions it may choose. size: the view it is best at. keep_images: screenshots shown, None for all.

    A subclass is a family of models; `name` is what it is called in `policy.json` and on the command line.
    """

    name: ClassVar[str]
    space: ClassVar[SpaceKind] = "relative"  # in which it gives points

    kinds: tuple[str, ...] = BROWSER_KINDS
    size: Size | None = None
    keep_images: int | None = None

    def __post_init__(self) -> None:
        if unknown := set(self.kinds) - set(_USAGE):
            raise ValueError(f"there is no kind of action {min(unknown)!r}; known are {', '.join(_USAGE)}")

    @abstractmethod
    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        """What the conversation of the steps so far goes on with; forced: only an answer is of use now."""

    @abstractmethod
    def schema(self, forced: bool = False) -> dict[str, Any]:
        """The JSON schema of an answer."""

    @abstractmethod
    def write(self, action: Action, note: str = "", thought: str = "") -> str:
        """The answer that `parse` reads as this action."""

    def parse(self, text: str, size: Size | None = None) -> ParsedAnswer:
        """What the policy asks for; ActionError if that cannot be understood. size: the screenshot's, for pixels."""
        from holotron.actions.action import ActionError, load_json, parse_action

        value = load_json(json_part(text))
        if not isinstance(value, dict):
            raise ActionError(f"an answer is a JSON object, not {text[:80]!r}")
        inner = value.get("action")
        if isinstance(inner, str):  # the bare action, even where more was asked for
            return ParsedAnswer(parse_action(value))
        if not isinstance(inner, dict):
            raise ActionError("the answer has no action; it must be an object with the field 'action'")
        note, thought = value.get("note", ""), value.get("thought", "")
        return ParsedAnswer(
            parse_action(inner), note if isinstance(note, str) else "", thought if isinstance(thought, str) else ""
        )

    def with_kinds(self, kinds: Sequence[str]) -> PolicyFormat:
        return replace(self, kinds=tuple(kinds))

    @property
    def spec(self) -> str:
        """The format as one word, from which `find_format` makes it again: `nano`, or `nano:click,type`."""
        default = FORMATS[self.name].kinds
        return self.name if self.kinds == default else f"{self.name}:{','.join(self.kinds)}"

    def _action_schema(self, forced: bool) -> dict[str, Any]:
        from holotron.actions.schema import action_schema

        ends = [kind for kind in ("answer", "infeasible") if kind in self.kinds]
        return action_schema(ends if forced and self._can_answer else self.kinds)

    @property
    def _can_answer(self) -> bool:
        return "answer" in self.kinds


@dataclass(frozen=True)
class NanoFormat(PolicyFormat):
    """Small policies: the task once, then screens alone, and the bare action in answer.

    Every word that a small model need not read is capacity and time.
    """

    name = "nano"

    kinds: tuple[str, ...] = PAGE_KINDS
    size: Size | None = (1024, 768)

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        return [Message("user", "" if past else f"Task: {task}", image)]

    def schema(self, forced: bool = False) -> dict[str, Any]:
        return self._action_schema(forced)

    def write(self, action: Action, note: str = "", thought: str = "") -> str:
        from holotron.actions.action import to_json

        return to_json(action)


@dataclass(frozen=True)
class JsonFormat(PolicyFormat):
    """Any chat model under our grammar: a note that outlives dropped screenshots and a thought, then the action."""

    name = "json"
    reasons: ClassVar[bool] = True

    keep_images: int | None = 3

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        lines = [_outcome(past[-1]) if past else f"Task: {task}"]
        if seen.url:
            lines.append(f"Page: {seen.title} ({seen.url})" if seen.title else f"Page: {seen.url}")
        if len(seen.tabs) > 1:
            lines.append("Tabs: " + "; ".join(map(str, seen.tabs)))
        lines += [f"Notice: {notice}" for notice in seen.notices]
        if forced and self._can_answer:
            lines.append("This is the last step: give the answer now.")
        question = Message("user", "\n".join(lines), image)
        return [question] if past else [Message("system", self.system()), question]

    def system(self) -> str:
        lines = [
            "You use a computer for somebody. At each step you see a screenshot and choose one action.",
            "Points are whole numbers from 0 to 1000 of the screenshot's width (x) and height (y).",
            "Actions:",
            *(f"- {_USAGE[kind]}" for kind in self.kinds),
        ]
        if self.reasons:
            lines.append(
                'Answer with JSON: {"note":"what to remember of this screenshot","thought":"what to do and why",'
                '"action":{…}}. Old screenshots are taken away; notes stay.'
            )
        else:
            lines.append("Answer with the JSON of the action alone.")
        return "\n".join(lines)

    def schema(self, forced: bool = False) -> dict[str, Any]:
        action = self._action_schema(forced)
        if not self.reasons:
            return action
        texts = {"note": {"type": "string", "maxLength": 500}, "thought": {"type": "string", "maxLength": 1000}}
        properties = texts | {"action": action}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def write(self, action: Action, note: str = "", thought: str = "") -> str:
        from holotron.actions.action import to_dict, to_json

        if not self.reasons:
            return to_json(action)
        value = {"note": note, "thought": thought, "action": to_dict(action)}
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class BareJsonFormat(JsonFormat):
    """The same without note and thought."""

    name = "json-bare"
    reasons = False


def json_part(text: str) -> str:
    """The text from its first brace to its last: models wrap JSON in fences and words."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _outcome(step: Taken) -> str:
    if step.feedback is not None:
        return f"Your answer was checked and is not accepted: {step.feedback}"
    if step.action is None:
        return f"Your last answer could not be used: {step.error}"
    return f"The last action failed: {step.error}" if step.error else "The last action was carried out."


def conversation(
    policy_format: PolicyFormat,
    task: str,
    steps: Sequence[Taken],
    image_of: Callable[[Any], bytes | None] = lambda seen: seen.image,
) -> Iterator[list[Message]]:
    """For each step of an episode, the messages that were sent. image_of: the picture of a stored observation."""
    for index, step in enumerate(steps):
        seen = step.observation
        yield policy_format.messages(task, steps[:index], seen, image_of(seen), step.forced)


# ---- which format ----

FORMATS: dict[str, type[PolicyFormat]] = {kind.name: kind for kind in (NanoFormat, JsonFormat, BareJsonFormat)}
# How policies are taught by `holotron.train`.
NANO = NanoFormat()
# How a small policy is asked on MiniWoB++, when it is taught and when it is judged.
NANO_WIDGETS = NANO.with_kinds(WIDGET_KINDS)


def find_format(spec: str) -> PolicyFormat:
    """A format by its name, or by its name and kinds of actions, as in `json:click,type,answer`."""
    name, _, kinds = spec.partition(":")
    if name not in FORMATS:
        raise ValueError(f"there is no policy format {name!r}; choose one of {', '.join(FORMATS)}")
    found = FORMATS[name]()
    return found.with_kinds(kinds.split(",")) if kinds else found


def format_of(folder: Path) -> PolicyFormat | None:
    """The format that a checkpoint folder names in its policy.json, or None if it names none."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        return read_format(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error!r}") from error


def read_format(value: dict[str, Any]) -> PolicyFormat:
    """The format that `told` describes; ValueError where there is none like it."""
    try:
        if unknown := value.keys() - {"format", "terse", "size"}:
            raise ValueError(f"unknown field {min(unknown)!r}")
        found = find_format(value["format"] if "format" in value else "nano" if value["terse"] else "json")
        size = value.get("size", found.size)
        return replace(found, size=None if size is None else (int(size[0]), int(size[1])))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"no policy format: {error!r}") from error


def told(policy_format: PolicyFormat) -> dict[str, Any]:
    """The format as policy.json has it, and as a server tells its clients."""
    size = None if policy_format.size is None else list(policy_format.size)
    return {"format": policy_format.spec, "size": size}


def save_format(policy_format: PolicyFormat, folder: Path) -> None:
    (folder / NAME).write_text(json.dumps(told(policy_format)) + "\n", encoding="utf-8")
