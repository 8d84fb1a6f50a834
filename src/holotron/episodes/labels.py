"""Labels of screens and episodes: what is said of them, who said it, and what became of it.

labels.jsonl   every label with its state; made anew from the answers by each run
review.jsonl   what a person decided, a line each, appended and synced; it counts more than the state
images/        the screens, by the SHA-256 of their bytes
accepted/      a store of episodes, made from what is accepted
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holotron.env.task import Noun, Text
from holotron.episodes.errors import EpisodeError
from holotron.episodes.files import write_whole
from holotron.episodes.images import ImageFolder
from holotron.episodes.line_log import LineLog, whole_part
from holotron.episodes.reading import decode, encode
from holotron.episodes.record import Digest, Side
from holotron.episodes.store import EpisodeStore

LABELS, REVIEW, ACCEPTED = "labels.jsonl", "review.jsonl", "accepted"
LabelKind: TypeAlias = Literal["element", "instruction", "caption", "thought", "verdict", "hindsight"]
State: TypeAlias = Literal["accepted", "review", "rejected"]
PixelBox: TypeAlias = tuple[float, float, float, float]


class Provenance(Noun):
    """Who spoke for a label or against it. source: dom, model, point, judge, episode or person; name: which model.

    answers: the keys of what it said in answers.jsonl.
    """

    source: Text
    name: Text = ""
    agrees: bool = True
    answers: tuple[Text, ...] = ()


class Label(Noun):
    """One statement. text: an instruction, a caption, a thought, an element's name, or success and failure.

    level: of an instruction, basic (what it is called), spatial (where it stands) or functional (what it is for).
    element: the kind of element that is meant. box: in pixels of the screen. reason: why it is not accepted.
    """

    id: Text
    kind: LabelKind
    text: Text
    state: State
    screen: Digest | None = None
    size: tuple[Side, Side] | None = None
    episode: Text = ""
    step: int | None = None
    level: Text = ""
    element: Text = ""
    box: PixelBox | None = None
    sources: tuple[Provenance, ...] = ()
    reason: Text = ""
    origin: Text = ""


class Decision(Noun):
    """What a person said of a label; text and box: what it should have been, where that is another."""

    label: Text
    state: Literal["accepted", "rejected"]
    text: Text | None = None
    box: PixelBox | None = None


def label_id(*parts: Any) -> str:
    """The same for the same statement in every run."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode()).hexdigest()[:20]


def accepted_id(label: Label) -> str:
    """The id of the accepted episode that a label is a part of."""
    return f"annotate.{label.episode or label.id}"[:128]


class LabelFolder:
    """The labels of a folder, with what people decided."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.images = ImageFolder(folder / "images")
        self._by_id: dict[str, Label] | None = None

    def write(self, labels: Iterable[Label]) -> None:
        """All of them, in place of those before."""
        write_whole(self.folder / LABELS, b"".join(encode(label) for label in labels), sync=True)

    def read(self) -> list[Label]:
        """As people decided where they did."""
        decisions = {each.label: each for each in self.decisions()}
        return [_decided(label, decisions.get(label.id)) for label in self._labels()]

    def decisions(self) -> list[Decision]:
        """In the order in which they were made; of one label the last counts."""
        path = self.folder / REVIEW
        return [decode(Decision, line, str(path)) for line in whole_part(path).splitlines()]

    def decide(self, decision: Decision) -> Label:
        """Keep a decision; the label as it is now. EpisodeError where there is no such label.

        What was learned from it so far leaves the accepted episodes at once; what is accepted now comes back with the
        next run.
        """
        if self._by_id is None or decision.label not in self._by_id:
            self._by_id = {each.id: each for each in self._labels()}
        label = self._by_id.get(decision.label)
        if label is None:
            raise EpisodeError(f"there is no label {decision.label[:40]!r} in {self.folder}")
        decided = _decided(label, decision)
        with closing(LineLog(self.folder / REVIEW)) as log:
            log.open()
            log.append(encode(decision))
        EpisodeStore(self.folder / ACCEPTED, sync="never").put_aside(accepted_id(label))
        return decided

    def _labels(self) -> list[Label]:
        path = self.folder / LABELS
        lines = whole_part(path).splitlines()
        return [decode(Label, line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def _decided(label: Label, decision: Decision | None) -> Label:
    if decision is None:
        return label
    changed: dict[str, Any] = {"state": decision.state, "reason": ""}
    changed |= {name: value for name in ("text", "box") if (value := getattr(decision, name)) is not None}
    box = changed.get("box")
    if box is not None:
        width, height = label.size or (0, 0)
        if not (0 <= box[0] < box[2] <= width and 0 <= box[1] < box[3] <= height):
            raise EpisodeError(f"the box {list(box)} is not on the screen of {width}×{height}")
    said = Provenance(source="person", agrees=decision.state == "accepted")
    return label.model_copy(update={**changed, "sources": (*label.sources, said)})
