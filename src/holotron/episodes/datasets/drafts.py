"""A record of a data set on its way to an episode: its words as they stand there, before images and points are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holotron.env.task import Scalar
from holotron.episodes.datasets.spaces import Box, BoxForm, Size

GROUNDING, TRAJECTORY = "grounding", "trajectory"
PREVIOUS = "\nPrevious operations:\n"


@dataclass(frozen=True)
class DraftStep:
    """One step. answer: what was done, as the source writes it; with a box instead, its middle is clicked.

    operation: the step in one sentence. wrong: it stands in the history and is not imitated. stated: the size that the
    record gives for its image. outline: instead of a box, the corners of a polygon. absent: what is asked for is not
    in the picture, and the right answer says so.
    """

    image: str
    answer: str = ""
    note: str = ""
    thought: str = ""
    operation: str = ""
    wrong: bool = False
    box: Box | None = None
    stated: Size | None = None
    outline: tuple[tuple[float, float], ...] = ()
    absent: bool = False


@dataclass(frozen=True)
class Draft:
    """An episode to be. previous: operations before its first step, in words, where the record tells of them.

    name: what it is among the tasks of its data set, such as "grounding" or "desktop-icon". answers, space, boxes: how
    its answers are written, and where its points and boxes are counted, as far as the record says so.
    """

    where: str
    images: Path
    instruction: str
    steps: tuple[DraftStep, ...]
    name: str = TRAJECTORY
    success: bool = True
    previous: tuple[str, ...] = ()
    answers: str | None = None
    space: str | None = None
    boxes: BoxForm | None = None
    extra: Mapping[str, Scalar] = field(default_factory=dict)

    def digest(self) -> str:
        """The same for the same content, wherever it stands."""
        images = (hashlib.sha256(step.image.encode(errors="surrogatepass")).hexdigest() for step in self.steps)
        steps = [[image, step.answer, step.box, step.wrong] for image, step in zip(images, self.steps, strict=True)]
        text = json.dumps([self.instruction, self.previous, steps], ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def task(self) -> str:
        """The instruction, with what was done before where no step shows it."""
        if not self.previous:
            return self.instruction
        lines = (f"Step {number}: {said}" for number, said in enumerate(self.previous, 1))
        return self.instruction + PREVIOUS + "\n".join(lines)


def joined(drafts: Iterable[Draft]) -> Iterator[Draft]:
    """Trajectories whose steps are records of their own, put together where each tells what was done before it."""
    last: Draft | None = None
    for draft in drafts:
        if last is not None and _continues(last, draft):
            last = replace(last, steps=last.steps + draft.steps)
            continue
        if last is not None:
            yield last
        last = draft
    if last is not None:
        yield last


def _continues(last: Draft, draft: Draft) -> bool:
    done = (*last.previous, *(step.operation for step in last.steps))
    same = (last.instruction, last.images, last.name) == (draft.instruction, draft.images, draft.name)
    return same and bool(draft.previous) and draft.previous == done and all(done)
