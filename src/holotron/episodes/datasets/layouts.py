"""The published layouts, each as a function from one record to the drafts of its episodes.

openai      {"messages": [{"role", "content"}]}: content is a text or parts, images are `image_url` parts (data URLs or
            files) or marks <image> for the list "images". One conversation is one episode.
agentnet    {"task_id", "instruction", "traj": [{"image", "value": {"code", "thought", …}}]}, as in OpenCUA.
llava       {"image", "conversations": [{"from", "value"}]}: ScaleCUA, Aguvis and the many like them.
screenspot  {"img_filename", "instruction", "bbox"}: ScreenSpot, -v2, -Pro, and records with the same under other names:
            OSWorld-G (also polygons and elements that are not there), GroundUI, WebClick, Showdown, UI-Vision.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from holotron.agent.policy_format import find_format
from holotron.env.task import Scalar
from holotron.episodes.datasets.drafts import GROUNDING, Draft, DraftStep, joined
from holotron.episodes.datasets.records import BadRecord, SourceRecord, Unsupported
from holotron.episodes.datasets.spaces import SPACES, BoxForm
from holotron.episodes.datasets.turns import (
    SourceTurn,
    object_of,
    objects_of,
    placed,
    size_of,
    text_of,
    turn_drafts,
)

_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "tool": "user", "function": "user",
    "observation": "user", "assistant": "assistant", "gpt": "assistant", "model": "assistant",
}  # fmt: skip
_IMAGE_KEYS = ("img_filename", "image", "image_path", "img_path", "file_name")
_INSTRUCTION_KEYS = ("instruction", "prompt_to_evaluate", "question", "command")
_BOX_KEYS = ("bbox", "box_coordinates", "bounding_box", "box")
_SIZE_KEYS = ("img_size", "image_size", "resolution")
_SIDES = ("x1", "y1", "x2", "y2")
_KEPT = (
    "id", "data_source", "application", "group", "platform", "ui_type", "data_type", "bucket", "source", "element_type",
    "box_type",
)  # fmt: skip
_PLATFORM = re.compile(r"mobile|desktop|web")
_PLATFORMS = {
    "ios": "mobile", "android": "mobile", "windows": "desktop", "macos": "desktop", "gitlab": "web", "shop": "web",
    "forum": "web", "tool": "web",
}  # by ScreenSpot's data_source  # fmt: skip


def openai(record: SourceRecord) -> list[Draft]:
    value = object_of(record.value, "the record")
    turns = [_message(message) for message in objects_of(value.get("messages"), "messages")]
    images = value.get("images") or []
    if not isinstance(images, list):
        raise BadRecord("not a record", "images is no list")
    if images:
        turns = placed(turns, [_image_name(image) for image in images])
    about = value.get("metadata")
    about = about if isinstance(about, dict) else {}
    task = next((said for said in (about.get("task"), value.get("task")) if isinstance(said, str) and said), None)
    return turn_drafts(record, turns, True, task=task, answers=_stated_format(about.get("policy_format")))


def _stated_format(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return find_format(value).spec
    except ValueError as error:
        raise BadRecord("not a record", str(error)[:200]) from None


def llava(record: SourceRecord) -> list[Draft]:
    value = object_of(record.value, "the record")
    said = objects_of(value.get("conversations"), "conversations")
    turns = [
        SourceTurn(_role(turn.get("from", turn.get("role"))), text_of(turn.get("value", turn.get("content")), "a turn"))
        for turn in said
    ]
    images = value.get("image", value.get("images")) or []
    names = [_image_name(image) for image in (images if isinstance(images, list) else [images])]
    stated = size_of(value.get("width"), value.get("height"))
    return turn_drafts(record, placed(turns, names), False, space=_space(value), stated=stated)


def agentnet(record: SourceRecord) -> list[Draft]:
    value = object_of(record.value, "the record")
    asked = (value.get(name) for name in ("instruction", "natural_language_task", "actual_task"))
    instruction = next((text.strip() for text in asked if isinstance(text, str) and text.strip()), "")
    if not instruction:
        raise BadRecord("no instruction", "the task has no instruction")
    key = next((name for name in ("traj", "trajectory", "steps") if name in value), "traj")
    steps = tuple(_agentnet_step(step) for step in objects_of(value.get(key), key))
    known = ("task_id", "domain", "alignment_score", "efficiency_score", "task_difficulty")
    extra = {name: value[name] for name in known if _is_scalar(value.get(name))}
    completed = value.get("task_completed", True) is not False
    return [Draft(record.where, record.images, instruction, steps, success=completed, answers="pyautogui", extra=extra)]


def _agentnet_step(step: Mapping[str, Any]) -> DraftStep:
    value = object_of(step.get("value", step), "value")

    def text(name: str) -> str:
        found = value.get(name)
        return found.strip() if isinstance(found, str) else ""

    wrong = value.get("last_step_correct") is False or value.get("last_step_redundant") is True
    return DraftStep(
        text_of(step.get("image"), "image"),
        text_of(value.get("code"), "code"),
        text("observation"),
        text("thought"),
        text("action"),
        wrong,
    )


def screenspot(record: SourceRecord) -> list[Draft]:
    value = object_of(record.value, "the record")
    image = _image_name(_first(value, _IMAGE_KEYS))
    elements = objects_of(value["elements"], "elements") if "elements" in value else [value]
    return [_element(record, image, {**value, **element}) for element in elements]


def _element(record: SourceRecord, image: str, value: Mapping[str, Any]) -> Draft:
    if "explanation" in value:  # a region of UI-Vision's layout task
        value = {"instruction": f"{text_of(value.get('name'), 'name')}: {value['explanation']}", **value}
    instruction = text_of(_first(value, _INSTRUCTION_KEYS), "instruction").strip()
    if not instruction:
        raise BadRecord("no instruction", "the instruction is empty")
    stated = next((size_of(*value[key]) for key in _SIZE_KEYS if _is_pair(value.get(key))), None)
    stated = stated or size_of(_number(value.get("width")), _number(value.get("height")))
    step, form = _target(DraftStep(image, stated=stated), value)
    kind = next((value[key] for key in ("data_type", "ui_type") if isinstance(value.get(key), str)), "")
    platform = value.get("platform") if isinstance(value.get("platform"), str) else ""
    if not platform and (found := _PLATFORM.search(record.where.partition(":")[0].partition("[")[0])):
        platform = found[0]
    platform = platform or _PLATFORMS.get(str(value.get("data_source")), "")
    name = "-".join(part for part in (platform, kind) if part) or GROUNDING
    extra: dict[str, Scalar] = {key: value[key] for key in _KEPT if _is_scalar(value.get(key))}
    draft = Draft(record.where, record.images, instruction, (step,), name, extra=extra)
    return replace(draft, space=_space(value), boxes=form)


def _target(step: DraftStep, value: Mapping[str, Any]) -> tuple[DraftStep, BoxForm | None]:
    """The step with what is to be found, and the form of its box where the record says it."""
    kind = value.get("box_type", "bbox")
    if kind == "refusal" or value.get("gt_type") == "negative":
        return replace(step, absent=True), None
    if kind == "polygon":
        numbers = _numbers(_first(value, _BOX_KEYS), "polygon")
        if len(numbers) < 6 or len(numbers) % 2:
            raise BadRecord("bad box", f"the polygon has {len(numbers)} numbers, which are not corners")
        return replace(step, outline=tuple(zip(numbers[::2], numbers[1::2], strict=True))), None
    if kind != "bbox":
        raise Unsupported("no box", f"the element is a {str(kind)[:40]!r}")
    named = all(side in value for side in _SIDES) and not any(value.get(key) for key in _BOX_KEYS)
    box = _numbers([_number(value[side]) for side in _SIDES] if named else _first(value, _BOX_KEYS), "box")
    if len(box) != 4:
        raise BadRecord("bad box", f"the box {list(box)[:8]} is not four numbers")
    form: BoxForm | None = value["bbox_form"] if value.get("bbox_form") in get_args(BoxForm) else None
    return replace(step, box=(box[0], box[1], box[2], box[3])), "xyxy" if named else form


def _space(value: Mapping[str, Any]) -> str | None:
    return value["coordinate_space"] if value.get("coordinate_space") in SPACES else None


def _first(value: Mapping[str, Any], keys: Iterable[str]) -> Any:
    keys = tuple(keys)
    found = next((value[key] for key in keys if value.get(key) is not None), None)
    if found is None:
        raise BadRecord("not a record", f"there is none of {', '.join(keys)}")
    return found


def _numbers(value: Any, what: str) -> tuple[float, ...]:
    numbers = value if isinstance(value, list) else []
    if not numbers or not all(
        isinstance(each, int | float) and not isinstance(each, bool) and -1e9 < each < 1e9 for each in numbers
    ):
        raise BadRecord("bad box", f"the {what} {json.dumps(value, default=str)[:80]} is not numbers")
    return tuple(numbers)


def _number(value: Any) -> Any:
    """A table's cell as a number, where it is one."""
    if not isinstance(value, str):
        return value
    try:
        return int(value)
    except ValueError:
        try:
            return float(value)
        except ValueError:
            return value


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int | float) and -(2.0**63) < value < 2.0**63)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _role(value: Any) -> str:
    if not isinstance(value, str) or value not in _ROLES:
        raise BadRecord("wrong roles", f"the role {str(value)[:40]!r} is not known; there are {', '.join(_ROLES)}")
    return _ROLES[value]


def _image_name(value: Any) -> str:
    """The file or the data URL that an image is given by."""
    while isinstance(value, dict):
        value = next((value[key] for key in ("url", "path", "image_url", "image") if key in value), None)
    if not isinstance(value, str) or not value:
        raise BadRecord("image missing", "an image has no name")
    return value


def _message(message: Mapping[str, Any]) -> SourceTurn:
    role = _role(message.get("role"))
    content, images, texts = message.get("content"), [], []
    for part in content if isinstance(content, list) else [] if content is None else [content]:
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(part, str):
            texts.append(part)
        elif kind in ("text", "input_text", "output_text"):
            texts.append(text_of(part.get("text"), "a part's text"))
        elif kind in ("image_url", "input_image", "image"):
            images.append(_image_name({key: each for key, each in part.items() if key != "type"}))
        else:
            raise Unsupported("other parts", f"a message has a part of type {str(kind)[:40]!r}")
    texts += [_tool_call(call) for call in message.get("tool_calls") or []]
    return SourceTurn(role, "\n".join(texts), tuple(images), message.get("weight", 1) != 0)


def _tool_call(call: Any) -> str:
    """A call as models of the Qwen family write it."""
    function = object_of(object_of(call, "a tool call").get("function"), "function")
    arguments = function.get("arguments")
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        raise BadRecord("broken JSON", "the arguments of a tool call are not valid JSON") from None
    return f"<tool_call>\n{json.dumps({'name': function.get('name'), 'arguments': arguments})}\n</tool_call>"


LAYOUTS: dict[str, Callable[[SourceRecord], list[Draft]]] = {
    "openai": openai,
    "agentnet": agentnet,
    "llava": llava,
    "screenspot": screenspot,
}


def read_drafts(
    layout: str, records: Iterable[SourceRecord], left_out: Callable[[SourceRecord, BadRecord], None]
) -> Iterator[Draft]:
    """The drafts of these records, in order; what cannot be one is told."""

    def each() -> Iterator[Draft]:
        for record in records:
            try:
                if record.problem is not None:
                    raise record.problem
                yield from LAYOUTS[layout](record)
            except BadRecord as problem:
                left_out(record, problem)

    return joined(each()) if layout == "llava" else each()
