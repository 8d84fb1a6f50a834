"""Episodes in the words of others: what stands for the steps of one episode in each of the JSONL formats.

All three keep the task, policy, environment, times and outcome, the screenshots with their size, thoughts, validator
feedback, and actions up to the losses of the vocabulary. All lose tokens and log-probabilities, notes, timings, who
acted, what a teacher said and the model's raw text. BrowserGym's also keeps url, tabs, errors and rewards of steps; the
others lose them. A foreign step with several actions is read as several steps with the same screenshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from holotron.actions.action import Action
from holotron.actions.coordinates import Space
from holotron.actions.dialects.browsergym import from_browsergym, to_browsergym
from holotron.actions.dialects.openai import from_openai, to_openai
from holotron.actions.dialects.uitars import from_uitars, split_reply, to_uitars
from holotron.env.task import Task
from holotron.episodes.errors import Damaged
from holotron.episodes.record import ObservationRecord, Result, Step, StepAction

ImageUrl = Callable[[ObservationRecord], str | None]
Items = list[dict[str, Any]]
Translated = TypeVar("Translated")


class ReadStep(NamedTuple):
    """What one foreign step says; image: where its screenshot is."""

    seen: ObservationRecord
    actions: list[Action]
    image: str | None
    thought: str = ""
    feedback: str | None = None
    result: Result = Result()


@dataclass(frozen=True)
class LineFormat:
    """One way to write the steps of an episode as JSON, and to read them."""

    name: str
    write: Callable[[Task, list[Step], ImageUrl], Items]
    read: Callable[[Items], Iterator[ReadStep]]


def read_steps(form: LineFormat, values: Items) -> Iterator[tuple[Step, str | None]]:
    """Steps, and where their screenshots are: one per action, and one without an action where there is none."""
    index = 0
    for seen, actions, image, thought, feedback, result in form.read(values):
        for action in actions or (None,):
            step = Step(
                index=index,
                observation=seen,
                thought=thought,
                action=None if action is None else StepAction.of(action, seen.width, seen.height, "pixels"),
                result=result,
                feedback=feedback,
            )
            yield step, image
            index += 1


def _translated(step: Step, to: Callable[[Action, Space], Translated]) -> Translated | None:
    return None if step.action is None else to(step.action.parse(), step.action.pixels)


def _pixels(seen: ObservationRecord) -> Space:
    return Space("pixels", seen.width, seen.height)


# ---- BrowserGym ----


def write_browsergym(task: Task, steps: list[Step], url: ImageUrl) -> Items:
    return [
        {
            "screenshot": url(step.observation),
            "width": step.observation.width,
            "height": step.observation.height,
            "url": step.observation.url,
            "open_pages_urls": list(step.observation.tabs),
            "thought": step.thought,
            "action": None if (lines := _translated(step, to_browsergym)) is None else "\n".join(lines),
            "error": step.result.error,
            "ok": step.result.ok,
            "reward": step.result.reward,
            "feedback": step.feedback,
        }
        for step in steps
    ]


def read_browsergym(values: Items) -> Iterator[ReadStep]:
    for value in values:
        url, tabs = value.get("url") or "", value.get("open_pages_urls") or ()
        seen = ObservationRecord(width=value["width"], height=value["height"], url=url, tabs=tabs)
        result = Result(ok=value.get("ok", True), error=value.get("error") or "", reward=value.get("reward"))
        text = value.get("action")
        actions = [] if text is None else from_browsergym(text, _pixels(seen))
        thought, feedback = value.get("thought") or "", value.get("feedback")
        yield ReadStep(seen, actions, value.get("screenshot"), thought, feedback, result)


# ---- UI-TARS ----


def write_uitars(task: Task, steps: list[Step], url: ImageUrl) -> Items:
    return [
        {
            "image": url(step.observation),
            "width": step.observation.width,
            "height": step.observation.height,
            "response": f"Thought: {step.thought}\nAction: " + "\n\n".join(_translated(step, to_uitars) or []),
            "feedback": step.feedback,
        }
        for step in steps
    ]


def read_uitars(values: Items) -> Iterator[ReadStep]:
    for value in values:
        seen = ObservationRecord(width=value["width"], height=value["height"])
        thought, text = split_reply(value["response"])
        actions = from_uitars(text, _pixels(seen)) if text.strip() else []
        yield ReadStep(seen, actions, value.get("image"), thought or "", value.get("feedback"))


# ---- OpenAI ----


def write_openai(task: Task, steps: list[Step], url: ImageUrl) -> Items:
    """Items in the order of the Responses API: what was seen, what was thought, what was done, what was seen then."""
    items: Items = []
    called: str | None = None
    feedback: str | None = task.text
    for step in steps:
        items.append(_seen(step.observation, url, called, feedback))
        if step.thought:
            summary = {"type": "summary_text", "text": step.thought}
            items.append({"type": "reasoning", "id": f"rs_{step.index}", "summary": [summary]})
        called, feedback = None, step.feedback
        if step.action is not None:
            item = to_openai(step.action.parse(), step.action.pixels, f"call_{step.index}")
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


def read_openai(items: Items) -> Iterator[ReadStep]:
    step: ReadStep | None = None
    for item in [*items, {"type": "message", "role": "user", "content": []}]:
        kind = item["type"]
        if kind == "computer_call_output" or (kind == "message" and item.get("role") == "user"):
            if step is not None:
                yield step._replace(feedback=_text(item))
            step = _looked(item)
        elif step is None:
            raise Damaged(f"an item {kind!r} stands before any screenshot")
        elif kind == "reasoning":
            step = step._replace(thought=step.thought + "".join(part["text"] for part in item["summary"]))
        else:
            step = step._replace(actions=step.actions + from_openai(item, _pixels(step.seen)))


def _looked(item: dict[str, Any]) -> ReadStep | None:
    """A step of which only the screenshot is known yet."""
    if "size" not in item:
        return None
    parts = [item["output"]] if "output" in item else item["content"]
    image = next((part["image_url"] for part in parts if "image_url" in part), None)
    return ReadStep(ObservationRecord(width=item["size"]["width"], height=item["size"]["height"]), [], image)


def _text(item: dict[str, Any]) -> str | None:
    parts = item.get("content") or []
    return next((part["text"] for part in parts if part.get("type") == "input_text"), None)


# The name in a file is the LineFormat's; "openai" is older than the layout of chat messages that has that name now.
FORMATS = {
    "responses": LineFormat("openai", write_openai, read_openai),
    "browsergym": LineFormat("browsergym", write_browsergym, read_browsergym),
    "uitars": LineFormat("uitars", write_uitars, read_uitars),
}
