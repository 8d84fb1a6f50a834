"""The answers of conversations as actions: PyAutoGUI calls, bare points, or the words of a policy format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from holotron.actions.action import Action, ActionError, to_json
from holotron.actions.coordinates import Space
from holotron.actions.dialects.fields import Inexpressible, build
from holotron.actions.dialects.pyautogui import from_pyautogui
from holotron.agent.formats.base import pointer_after, with_points
from holotron.agent.policy_format import FORMATS, PolicyFormat, find_format
from holotron.episodes.datasets.records import DatasetError
from holotron.episodes.datasets.spaces import Size, SourceSpace
from holotron.episodes.record import Step

CODE, POINT = "pyautogui", "point"
ANSWERS = (CODE, POINT, *FORMATS)
MOST_CHARS = 100_000
TRIED = 500  # answers, from which the form is found out
_TAGGED = {name: re.compile(rf"<{name}>(.*?)</{name}>", re.DOTALL) for name in ("think", "operation", "action")}
_CALL = re.compile(r"^(?:```\w*\s*)?(?:pyautogui|computer|mobile|browser)\.\w+\(", re.MULTILINE)
_LABELS = re.compile(r"^\s*(Observation|Thought|Action|Code)\s*:\s*", re.MULTILINE)
_NUMBER = r"(-?\d{1,6}(?:\.\d{1,12})?)"
_POINT = re.compile(rf"{_NUMBER}[\s,]+{_NUMBER}(?:[\s,)\](\[]+{_NUMBER}[\s,]+{_NUMBER})?")
_WORDS = re.compile(r"[A-Za-z]{3,}")
_KNOWN_WORDS = {"point", "bbox", "box", "start", "end", "click", "coordinate", "point_2d", "bbox_2d"}


@dataclass(frozen=True)
class SplitAnswer:
    """An answer's parts in words, and the code or point that is left."""

    code: str
    note: str = ""
    thought: str = ""
    operation: str = ""


def split_answer(text: str) -> SplitAnswer:
    """`<think>`, `<operation>` and `<action>`, or `Observation:`, `Thought:` and `Action:` before the code."""
    tagged = {name: found[1].strip() for name, pattern in _TAGGED.items() if (found := pattern.search(text))}
    if "action" in tagged:
        return SplitAnswer(tagged["action"], "", tagged.get("think", ""), tagged.get("operation", ""))
    text = text.rpartition("</think>")[2].strip()
    call = _CALL.search(text)
    words, code = (text[: call.start()], text[call.start() :]) if call else _at_last_label(text)
    said: dict[str, str] = {}
    marks = list(_LABELS.finditer(words))
    for mark, end in zip(marks, [*(after.start() for after in marks[1:]), len(words)], strict=False):
        said[mark[1]] = words[mark.end() : end].strip()
    before = words.strip() if not marks else ""
    return SplitAnswer(
        code.strip(),
        said.get("Observation", ""),
        said.get("Thought", tagged.get("think", before)),
        said.get("Action", ""),
    )


def _at_last_label(text: str) -> tuple[str, str]:
    marks = [mark for mark in _LABELS.finditer(text) if mark[1] in ("Action", "Code")]
    return (text[: marks[-1].start()], text[marks[-1].end() :]) if marks else ("", text)


def read_answer(
    form: str, text: str, size: Size, space: Space, past: Sequence[Step] = ()
) -> tuple[Action, SplitAnswer]:
    """The one action of an answer, and its words; ActionError where it cannot be understood.

    space: of its points, where the form itself does not say. past: the steps before, for what continues them.
    """
    if len(text) > MOST_CHARS:
        raise ActionError(f"the answer has {len(text)} characters; {MOST_CHARS} are the most allowed")
    if form not in (CODE, POINT):
        parsed = strict(form).parse(text, size, past)
        return parsed.action, SplitAnswer("", parsed.note, parsed.thought)
    parts = split_answer(text)
    if form == POINT:
        return _point(parts.code, space), parts
    pointers = (pointer_after([step]) for step in reversed(past))
    found = from_pyautogui(parts.code, space, next(filter(None, pointers), None))
    if len(found) != 1:
        raise Inexpressible(f"{len(found)} actions in one step", "an action")
    return found[0], parts


def _point(text: str, space: Space) -> Action:
    """A click at a point that stands alone, or at the middle of a box."""
    found = _POINT.search(text) if len(text) < 400 else None
    strange = {word.lower() for word in _WORDS.findall(text)} - _KNOWN_WORDS
    if found is None or strange:
        raise ActionError(f"the answer is no point: {text[:80]!r}")
    numbers = [float(number) for number in found.groups() if number is not None]
    x, y = numbers if len(numbers) == 2 else ((numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2)
    return build("click", space.to_relative(x, y))


@cache
def strict(spec: str) -> PolicyFormat:
    """A policy format for which a point outside the picture is an error."""
    return with_points(find_format(spec), lambda space: SourceSpace(space.kind, space.width, space.height))


def find_form(answers: Sequence[tuple[str, Size]], most_bad: float) -> str:
    """How answers are written; DatasetError where several ways read them differently, or none reads them."""
    answers = answers[:: 1 + len(answers) // TRIED]
    read: dict[str, list[str | None]] = {form: [_tried(form, text, size) for text, size in answers] for form in ANSWERS}
    possible = [form for form, found in read.items() if found.count(None) <= most_bad * len(found)]
    if not possible:
        best = min(read, key=lambda form: read[form].count(None))
        example = next(text for (text, _), found in zip(answers, read[best], strict=True) if found is None)
        raise DatasetError(
            f"the answers are in no form that is known ({', '.join(ANSWERS)}); such as {example[:120]!r}"
        )
    if any(read[form] != read[possible[0]] for form in possible):
        raise DatasetError(f"the answers can be read as {' or '.join(possible)}, with other results; say --answers")
    return possible[0]


def _tried(form: str, text: str, size: Size) -> str | None:
    try:
        # Wide enough for any space: which one it is is asked later.
        return to_json(read_answer(form, text, size, Space("pixels", 100_000, 100_000))[0])
    except Inexpressible:
        return ""  # it is of this form
    except ValueError:
        return None
