"""Conversations about screenshots, LLaVA's and OpenAI's: their turns, and the episodes that these are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from holotron.episodes.datasets.answers import split_answer
from holotron.episodes.datasets.drafts import GROUNDING, TRAJECTORY, Draft, DraftStep
from holotron.episodes.datasets.records import BadRecord, SourceRecord, Unsupported
from holotron.episodes.datasets.spaces import Size

MARK = "<image>"
_TASKS = (
    re.compile(r"<task>\s*(.+?)\s*</task>", re.DOTALL),
    re.compile(r"^## User Instruction\s*\n(.+?)\s*\Z", re.DOTALL | re.MULTILINE),
    re.compile(
        r"^(?:Task|Instruction)s?:[ \t]*(.+?)\s*(?=^(?:Previous (?:operations|actions)|Page: |Tabs: |Notice: )|\Z)",
        re.DOTALL | re.MULTILINE,
    ),
)
_PREVIOUS = re.compile(r"^Previous (?:operations|actions)[^\n]*:[ \t]*\n?(.*)\Z", re.DOTALL | re.MULTILINE)
_STEP = re.compile(r"^Step \d+:[ \t]*(.*?)\s*(?=^Step \d+:|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class SourceTurn:
    """Who says what: "system", "user" or "assistant"; images: what came with it. learn False: not to be imitated."""

    role: str
    text: str
    images: tuple[str, ...] = ()
    learn: bool = True


def turn_drafts(
    record: SourceRecord,
    turns: Sequence[SourceTurn],
    continues: bool,
    *,
    task: str | None = None,
    answers: str | None = None,
    space: str | None = None,
    stated: Size | None = None,
) -> list[Draft]:
    """The episodes of one conversation.

    A question without a picture of its own is another task on the picture before it. One with a picture goes on with
    the task where `continues`, or where it says nothing, and else is a task of its own.
    """
    drafts: list[Draft] = []
    image: str | None = None
    untold = ""
    for question, answer in _pairs([turn for turn in turns if turn.role != "system"]):
        text = "\n".join(filter(None, (untold, question.text.strip())))
        image = question.images[-1] if question.images else image
        if image is None and not answer.learn:
            untold = text  # history whose screenshots were dropped; it may begin with the task
            continue
        if image is None:
            raise Unsupported("no screenshot", "an answer has no screenshot before it")
        untold = ""
        if len(question.images) > 1:
            raise Unsupported("several screenshots", f"a question shows {len(question.images)} screenshots")
        said = split_answer(answer.text)
        step = DraftStep(image, answer.text, operation=said.operation, wrong=not answer.learn, stated=stated)
        if drafts and question.images and (continues or not text):
            drafts[-1] = replace(drafts[-1], steps=(*drafts[-1].steps, step), name=TRAJECTORY)
            continue
        instruction, previous, labelled = read_question(text)
        if task and not drafts:
            instruction, previous = task, ()
        if not instruction:
            raise BadRecord("no instruction", "a question has no words")
        name = TRAJECTORY if labelled else GROUNDING
        drafts.append(
            Draft(
                record.where, record.images, instruction, (step,), name, previous=previous, answers=answers, space=space
            )
        )
    if not drafts:
        raise BadRecord("no answer", "the conversation has no answer")
    return drafts


def read_question(text: str) -> tuple[str, tuple[str, ...], bool]:
    """The task of a question, the operations before it, and whether the words are those for a step of a task."""
    previous = _PREVIOUS.search(text)
    steps = read_steps_before(previous[1]) if previous else ()
    for pattern in _TASKS:
        if found := pattern.search(text):
            return found[1].strip(), steps, True
    return text.strip(), steps, previous is not None


def read_steps_before(text: str) -> tuple[str, ...]:
    """The operations in lines of the form `Step 1: …`, some with quotes around them."""
    steps = (found[1].strip() for found in _STEP.finditer(text))
    return tuple(step[1:-1] if len(step) > 1 and step[0] == step[-1] == '"' else step for step in steps)


def placed(turns: Sequence[SourceTurn], images: Sequence[str]) -> list[SourceTurn]:
    """The turns with the images that their marks stand for; a single image without a mark comes first."""
    marks = sum(turn.text.count(MARK) for turn in turns)
    if marks != len(images) and not (marks == 0 and len(images) == 1):
        raise BadRecord("wrong marks", f"there are {len(images)} images and {marks} marks {MARK}")
    rest = iter(images)
    found: list[SourceTurn] = []
    for turn in turns:
        first = marks == 0 and bool(images) and turn.role == "user" and not any(each.images for each in found)
        own = tuple(next(rest) for _ in range(1 if first else turn.text.count(MARK)))
        found.append(replace(turn, text=turn.text.replace(MARK, "").strip(), images=(*turn.images, *own)))
    return found


def _pairs(turns: Sequence[SourceTurn]) -> Iterator[tuple[SourceTurn, SourceTurn]]:
    """Each question with its answer; what one side says in several turns is one."""
    merged = []
    for role, same in groupby(turns, lambda turn: turn.role):
        parts = list(same)
        text = "\n".join(part.text for part in parts if part.text)
        images = tuple(image for part in parts for image in part.images)
        merged.append(SourceTurn(role, text, images, all(part.learn for part in parts)))
    if [turn.role for turn in merged] != ["user", "assistant"] * (len(merged) // 2):
        raise BadRecord("wrong roles", f"the roles are {', '.join(turn.role for turn in merged)[:80]}")
    yield from zip(merged[::2], merged[1::2], strict=True)


def object_of(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRecord("not a record", f"{what} is no object")
    return value


def text_of(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise BadRecord("not a record", f"{what} is no text")
    return value


def objects_of(value: Any, what: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        raise BadRecord("not a record", f"{what} is no list, or an empty one")
    return [object_of(each, f"an element of {what}") for each in value]


def size_of(width: Any, height: Any) -> Size | None:
    """A stated size, or None where there is none."""
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return width, height
    return None
