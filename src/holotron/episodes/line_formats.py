"""Episodes in the words of others: what stands for the steps of one episode in each of the JSONL formats.

All three keep the task, policy, environment, times and outcome, the screenshots with their size, thoughts, validator
feedback, and actions up to the losses of the vocabulary. All lose tokens and log-probabilities, notes, timings, who
acted, what a teacher said and the model's raw text. BrowserGym's also keeps url, tabs, errors and rewards of steps; the
others lose them. A foreign step with several actions is read as several steps with the same screenshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from holotron.actions.action import Action, ActionError
from holotron.actions.coordinates import Space
from holotron.actions.dialects.browsergym import from_browsergym, to_browsergym
from holotron.actions.dialects.openai import from_openai, to_openai
from holotron.actions.dialects.uitars import from_uitars, split_reply, to_uitars
from holotron.env.task import Task
from holotron.episodes.errors import Damaged
from holotron.episodes.record import ObservationRecord, Result, Step, StepAction

ImageUrl = Callable[[ObservationRecord], str | None]
LoadImage = Callable[[str], bytes]
Steps = Iterator[tuple[Step, str | None]]  # a step, and where its screenshot is


@dataclass(frozen=True)
class LineFormat:
    """One way to write the steps of an episode as JSON, and to read them."""

    name: str
    write: Callable[[Task, list[Step], ImageUrl], list[dict[str, Any]]]
    read: Callable[[list[dict[str, Any]]], Steps]


# ---- BrowserGym ----


def write_browsergym(task: Task, steps: list[Step], url: ImageUrl) -> list[dict[str, Any]]:
    return [
        {
            "screenshot": url(step.observation),
            "width": step.observation.width,
            "height": step.observation.height,
            "url": step.observation.url,
            "open_pages_urls": list(step.observation.tabs),
            "thought": step.thought,
            "action": "\n".join(to_browsergym(action, step.action.pixels)) if (action := _action(step)) and step.action
            else None,
            "error": step.result.error,
            "ok": step.result.ok,
            "reward": step.result.reward,
            "feedback": step.feedback,
        }
        for step in steps
    ]  # fmt: skip


def read_browsergym(values: list[dict[str, Any]]) -> Steps:
    index = 0
    for value in values:
        seen = ObservationRecord(
            width=value["width"],
            height=value["height"],
            url=value.get("url") or "",
            tabs=value.get("open_pages_urls") or (),
        )
        result = Result(ok=value.get("ok", True), error=value.get("error") or "", reward=value.get("reward"))
        text = value.get("action")
        actions = [] if text is None else from_browsergym(text, Space("pixels", seen.width, seen.height))
        for step in _steps(index, seen, actions, value, result):
            yield step, value.get("screenshot")
            index += 1


# ---- UI-TARS ----


def write_uitars(task: Task, steps: list[Step], url: ImageUrl) -> list[dict[str, Any]]:
    written = []
    for step in steps:
        action = _action(step)
        calls = to_uitars(action, step.action.pixels) if action and step.action else []
        written.append(
            {
                "image": url(step.observation),
                "width": step.observation.width,
                "height": step.observation.height,
                "response": f"Thought: {step.thought}\nAction: " + "\n\n".join(calls),
                "feedback": step.feedback,
            }
        )
    return written


def read_uitars(values: list[dict[str, Any]]) -> Steps:
    index = 0
    for value in values:
        seen = ObservationRecord(width=value["width"], height=value["height"])
        thought, text = split_reply(value["response"])
        actions = from_uitars(text, Space("pixels", seen.width, seen.height)) if text.strip() else []
        for step in _steps(index, seen, actions, value | {"thought": thought}, Result()):
            yield step, value.get("image")
            index += 1


# ---- OpenAI ----


def write_openai(task: Task, steps: list[Step], url: ImageUrl) -> list[dict[str, Any]]:
    """Items in the order of the Responses API: what was seen, what was thought, what was done, what was seen then."""
    items: list[dict[str, Any]] = []
    called: str | None = None
    feedback: str | None = task.text
    for step in steps:
        items.append(_seen(step.observation, url, called, feedback))
        if step.thought:
            summary = {"type": "summary_text", "text": step.thought}
            items.append({"type": "reasoning", "id": f"rs_{step.index}", "summary": [summary]})
        action = _action(step)
        called, feedback = None, step.feedback
        if action is not None and step.action is not None:
            item = to_openai(action, step.action.pixels, f"call_{step.index}")
            items.append(item)
            called = item.get("call_id")
    if feedback is not None and steps:
        items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": feedback}]})
    return items


def _seen(seen: ObservationRecord, url: ImageUrl, called: str | None, text: str | None) -> dict[str, Any]:
    # Not part of the API, and ignored there: without the image, nothing else tells its size.
    size = {"width": seen.width, "height": seen.height}
    if called is not None and text is None:
        output = {"type": "computer_screenshot", "image_url": url(seen)}
        return {"type": "computer_call_output", "call_id": called, "output": output, "size": size}
    content: list[dict[str, Any]] = [] if text is None else [{"type": "input_text", "text": text}]
    content.append({"type": "input_image", "image_url": url(seen), "detail": "auto"})
    return {"type": "message", "role": "user", "content": content, "size": size}


def read_openai(items: list[dict[str, Any]]) -> Steps:
    index = 0
    pending: dict[str, Any] | None = None
    for item in [*items, {"type": "message", "role": "user", "content": []}]:
        kind = item["type"]
        if kind == "computer_call_output" or (kind == "message" and item.get("role") == "user"):
            if pending is not None:
                pending["feedback"] = _text(item)
                for step in _steps(index, pending["seen"], pending["actions"], pending, Result()):
                    yield step, pending["image"]
                    index += 1
            pending = _pending(item)
        elif pending is None:
            raise Damaged(f"an item {kind!r} stands before any screenshot")
        elif kind == "reasoning":
            pending["thought"] += "".join(part["text"] for part in item["summary"])
        else:
            seen = pending["seen"]
            pending["actions"] += from_openai(item, Space("pixels", seen.width, seen.height))


def _pending(item: dict[str, Any]) -> dict[str, Any] | None:
    if "size" not in item:
        return None
    parts = [item["output"]] if "output" in item else item["content"]
    image = next((part["image_url"] for part in parts if "image_url" in part), None)
    seen = ObservationRecord(width=item["size"]["width"], height=item["size"]["height"])
    return {"seen": seen, "image": image, "thought": "", "actions": []}


def _text(item: dict[str, Any]) -> str | None:
    parts = item.get("content") or []
    return next((part["text"] for part in parts if part.get("type") == "input_text"), None)


# ---- common ----


def _action(step: Step) -> Action | None:
    return None if step.action is None else step.action.parse()


def _steps(
    first: int, seen: ObservationRecord, actions: list[Action], value: dict[str, Any], result: Result
) -> Iterator[Step]:
    """One step per action; a step without an action if there is none."""
    for offset, action in enumerate(actions or [None]):
        yield Step(
            index=first + offset,
            observation=seen,
            thought=value.get("thought") or "",
            action=None if action is None else StepAction.of(action, seen.width, seen.height, "pixels"),
            result=result,
            feedback=value.get("feedback"),
        )


FORMATS = {
    "openai": LineFormat("openai", write_openai, read_openai),
    "browsergym": LineFormat("browsergym", write_browsergym, read_browsergym),
    "uitars": LineFormat("uitars", write_uitars, read_uitars),
}
UNREADABLE = (ActionError, KeyError, TypeError, AttributeError, ValueError)
