"""Holotron: the agent contract published with Holotron-3-Nano, a step of `{note, thought, tool_call}` in 0–1000.

The twelve tools of the desktop are the published ones. In a browser without an address bar there are four more, with
the names that Holo's web navigator has for them; with `DESKTOP_KINDS` the prompt is the published one to the letter.
Only the JSON of a step stays in the history, with all its fields; of the screenshots the last three.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holotron.agent.chat import Message, trimmed
from holotron.agent.formats.base import (
    LAST_STEP,
    ParsedAnswer,
    PolicyFormat,
    Seen,
    Size,
    Taken,
    as_text,
    compact,
    load_object,
    only,
    pointer_after,
    with_answers,
    without_thinking,
    written_by,
)
from holotron.agent.formats.holo import OMITTED, keep_tools
from holotron.agent.formats.texts import contract_json, filled, tightened

if TYPE_CHECKING:
    from holotron.actions.action import Action

MOST_STEPS, MOST_SECONDS = 50, 1800  # the budget that the contract states
MOST_OUTPUT = 2000  # characters of a tool's output
# The definitions in the schema that stand for each kind of action; `update_plan` is always there.
_TOOLS: dict[str, tuple[str, ...]] = {
    "click": ("ClickDesktop",),
    "double_click": ("DoubleClickDesktop",),
    "hover": ("MoveToDesktop",),
    "drag": ("MoveToDesktop", "DragToDesktop"),
    "type": ("WriteDesktop",),
    "press": ("KeyDownDesktop", "KeyUpDesktop", "HotkeyDesktop", "HoldAndTapKeyDesktop"),
    "scroll": ("ScrollDesktop",),
    "answer": ("Answer",),
}
DESKTOP_KINDS = tuple(_TOOLS)
# Tool, what it does, its fields.
_BROWSER_TOOLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "goto": ("goto", "Open an address.", {"url": {"type": "string"}}),
    "back": ("go_back", "Go back to the previous page.", {}),
    "refresh": ("refresh", "Load the page again.", {}),
    "wait": ("wait", "Wait before the next look.", {"seconds": {"maximum": 10, "minimum": 0, "type": "integer"}}),
}
_KINDS = (*DESKTOP_KINDS, *_BROWSER_TOOLS)


@dataclass(frozen=True)
class HolotronFormat(PolicyFormat):
    name = "holotron"
    vocabulary = _KINDS
    dated = True
    # The answer is held to its schema from its first token.
    template: ClassVar[Mapping[str, Any]] = {"enable_thinking": False}

    kinds: tuple[str, ...] = _KINDS
    keep_images: int | None = 3

    def messages(
        self, task: str, past: Sequence[Taken], seen: Seen, image: bytes | None, forced: bool = False
    ) -> list[Message]:
        if past:
            told = [Message("user", _result(past[-1]))]
        else:
            told = [Message("system", self.system()), Message("user", f"Task: {task}")]
        if forced and self._can_answer:
            told.append(Message("user", LAST_STEP))
        return [
            *told,
            Message("user", "<observation>\n", self.shown(image), image_first=False, tail="\n</observation>"),
        ]

    def system(self) -> str:
        offered = [_BROWSER_TOOLS[kind] for kind in self.kinds if kind in _BROWSER_TOOLS]
        lines = [f"- `{tool}({', '.join(fields)})`: {what}" for tool, what, fields in offered]
        return filled(
            "holotron_system.txt",
            browser="\nThe screen shows a web browser without its address bar. Browser tools:\n"
            + "".join(f"{line}\n" for line in lines)
            if lines
            else "",
            date=self.date or "unknown",
            steps=str(MOST_STEPS),
            seconds=str(MOST_SECONDS),
            schema=json.dumps(self._step_schema(self.kinds, plan=True)),
        )

    def schema(self, forced: bool = False) -> dict[str, Any]:
        allowed = self._allowed(forced)
        schema = self._step_schema(allowed, plan=allowed == self.kinds)
        # A key that stays down is no action here.
        usable = schema["$defs"].keys() - {"KeyDownDesktop", "KeyUpDesktop"}
        keep_tools(schema, schema["properties"]["tool_call"], usable)
        return tightened(schema) | {"required": ["note", "thought", "tool_call"]}

    def _step_schema(self, kinds: Sequence[str], plan: bool) -> dict[str, Any]:
        schema = contract_json("holotron_step.json")
        wanted = {tool for kind in kinds for tool in _TOOLS.get(kind, ())} | ({"UpdatePlan"} if plan else set())
        keep_tools(schema, schema["properties"]["tool_call"], wanted, also=("Goal",) if plan else ())
        for kind in kinds:
            if kind in _BROWSER_TOOLS:
                name, what, fields = _BROWSER_TOOLS[kind]
                schema["$defs"][name] = _definition(name, what, fields)
                schema["properties"]["tool_call"]["anyOf"].append({"$ref": f"#/$defs/{name}"})
        return schema

    def write(self, action: Action, note: str = "", thought: str = "", size: Size | None = None) -> str:
        return compact({"note": note or None, "thought": thought, "tool_call": _call(action, self.points(size))})

    def parse(self, text: str, size: Size | None = None, past: Sequence[Taken] = ()) -> ParsedAnswer:
        from holotron.actions.action import ActionError, Wait
        from holotron.actions.dialects.holo import from_holo

        value = load_object(without_thinking(text))
        call = value.get("tool_call")
        if not isinstance(call, dict):
            raise ActionError("the answer has no tool call; it must be an object with the field 'tool_call'")
        if call.get("tool_name") == "update_plan":  # nothing on the screen changes
            action: Action = Wait(seconds=0)
        else:
            action = only(from_holo([call], self.points(size), pointer=pointer_after(past)), "Holotron")
        return ParsedAnswer(action, as_text(value.get("note")), as_text(value.get("thought")))

    def history(self, messages: Sequence[Message]) -> list[Message]:
        return with_answers(trimmed(messages, self.keep_images, OMITTED), self._dumped)

    def _dumped(self, text: str) -> str:
        """A step with all its fields, defaults too; what is no step stays as it was written."""
        try:
            value = load_object(without_thinking(text))
            call = dict(value["tool_call"])
        except (ValueError, KeyError, TypeError):
            return without_thinking(text)
        for tool in self._step_schema(self.kinds, plan=True)["$defs"].values():
            if tool["properties"].get("tool_name", {}).get("const") == call.get("tool_name"):
                known = {name: rule["default"] for name, rule in tool["properties"].items() if "default" in rule}
                call = {name: (known | call)[name] for name in tool["properties"] if name in known | call}
        return compact({"note": value.get("note"), "thought": value.get("thought", ""), "tool_call": call})


def _definition(name: str, what: str, fields: dict[str, Any]) -> dict[str, Any]:
    tag = {"const": name, "title": "Tool Name", "type": "string"}
    return {
        "additionalProperties": False,
        "description": what,
        "properties": {"tool_name": tag, **{key: rule | {"title": key.title()} for key, rule in fields.items()}},
        "required": ["tool_name", *fields],
        "title": name,
        "type": "object",
    }


def _call(action: Action, space: Any) -> dict[str, Any]:
    """The one tool call that stands for an action."""
    from holotron.actions.action import Type
    from holotron.actions.dialects.fields import Inexpressible
    from holotron.actions.dialects.holo import to_holo

    if action.action in _BROWSER_TOOLS:
        [browser] = to_holo(action, space, "browser")
        return {"tool_name": browser.pop("action"), **browser}
    if isinstance(action, Type) and action.x is None:
        flags = {"press_enter": action.enter, "overwrite": action.clear}
        return {"tool_name": "write_desktop", "content": action.text, **flags}
    calls = to_holo(action, space, "desktop")
    if len(calls) != 1:
        raise Inexpressible(f"{action.action} in one tool call", "Holotron")
    call = calls[0]
    name = call.pop("action")
    if name == "answer":
        return {"tool_name": name, **call}
    if name == "scroll":
        order = {"element": "", "x": call["x"], "y": call["y"], "direction": call["direction"]}
        return {"tool_name": "scroll_desktop", **order, "scroll_size": call["size"]}
    if name == "hotkey":
        return {"tool_name": "hotkey_desktop", "keys": call["keys"], "repeat_count": call["repeat"]}
    return {"tool_name": f"{name}_desktop", **call}


def _result(step: Taken) -> str:
    """What the tool of a step put out: nothing, or an error."""
    tool = _tool_of(step)
    if step.feedback is not None:
        return f'<error tool="answer">\n{step.feedback[:MOST_OUTPUT]}\n</error>'
    if step.error or step.action is None:
        return f'<error tool="{tool}">\n{step.error[:MOST_OUTPUT]}\n</error>'
    return f'<tool_output tool="{tool}">\n\n</tool_output>'


def _tool_of(step: Taken) -> str:
    """The tool that a step called: the model's own word, or the one for the action of another who acted."""
    from holotron.actions.coordinates import Space

    try:
        if text := written_by(step):
            return str(load_object(without_thinking(text))["tool_call"]["tool_name"])
        action = step.action.parse() if hasattr(step.action, "parse") else step.action
        return str(_call(action, Space("relative", 1000, 1000))["tool_name"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return "unknown"
