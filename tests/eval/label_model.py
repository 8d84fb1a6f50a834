"""A scripted model and judge of labels that know what is on each screen, and how often they are to be wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holotron.eval.annotation.screens import told_apart
from holotron.suites.screens.labels import ScreenElement

Boxes = Sequence[tuple[str, str, tuple[float, float, float, float]]]  # kind, name, box in pixels


def truth_of(elements: Sequence[ScreenElement]) -> Boxes:
    return [(each.kind, each.name, each.box) for each in elements if each.usable]


@dataclass(frozen=True)
class LabelModel:
    """Answers the questions of `holotron data annotate` from what is known of each screen, by the picture's digest.

    missed, moved, invented: the shares of elements that it leaves out, gives a wrong box, or makes up; astray: of
    points that it gives elsewhere. What it says of the same screen is always the same.
    """

    truth: Mapping[str, tuple[tuple[int, int], Boxes]]
    missed: float = 0.0
    moved: float = 0.0
    invented: float = 0.0
    astray: float = 0.0

    def answer(self, request: dict[str, Any]) -> str:
        text, digest = asked(request)
        if "Answer with YES or NO" in text:
            return "NO" if "wrongly" in text else "YES"
        size, boxes = self.truth[digest]
        chance = random.Random(f"{digest}/{text}")
        if text.startswith("List what can be operated"):
            return json.dumps({"elements": self._named(boxes, size, random.Random(digest))})
        if text.startswith("Describe this screenshot"):
            return "A page" if chance.random() < 0.8 else "A page, wrongly described"
        if text.startswith("For each of these elements"):
            found = re.findall(r'^(\d+)\. (.+?) "(.*)" at', text, re.MULTILINE)
            return json.dumps({"instructions": {number: f'Use what "{name}" is for' for number, _, name in found}})
        return self._point(text, size, boxes, chance)

    def _named(self, boxes: Boxes, size: tuple[int, int], chance: random.Random) -> list[dict[str, Any]]:
        named = []
        for kind, name, box in boxes:
            draw = chance.random()
            if draw < self.missed:
                continue
            moved = draw < self.missed + self.moved
            shift = 0.3 if moved else 0.0
            sides = [min(0.999, max(0.0, side / size[index % 2] + shift)) for index, side in enumerate(box)]
            if sides[2] - sides[0] > 0.002 and sides[3] - sides[1] > 0.002:
                named.append({"name": name, "kind": kind, "box": [1000 * side for side in sides]})
            if chance.random() < self.invented:
                named.append({"name": f"Nothing {len(named)}", "kind": "button", "box": [10, 10, 90, 60]})
        return named

    def _point(self, text: str, size: tuple[int, int], boxes: Boxes, chance: random.Random) -> str:
        """In the middle of the element whose name is said, wherever a box was said to be."""
        elements = [_bare(*each) for each in boxes]
        told = [f"{words}\n" for words in told_apart(elements)]
        meant = [each.box for each, words in zip(elements, told, strict=True) if words in f"{text}\n"]
        meant = meant or [box for _, name, box in boxes if name and f'"{name}"' in text]
        meant = meant or [box for kind, name, box in boxes if not name and f"the {kind}" in text]
        if not meant or chance.random() < self.astray:
            return json.dumps({"x": chance.randrange(1001), "y": chance.randrange(1001)})
        left, top, right, bottom = meant[0]
        return json.dumps({"x": 500 * (left + right) / size[0], "y": 500 * (top + bottom) / size[1]})


def _bare(kind: str, name: str, box: tuple[float, float, float, float]) -> ScreenElement:
    middle = (round((box[0] + box[2]) / 2), round((box[1] + box[3]) / 2))
    return ScreenElement(kind, name, name, None, (), "", "", "", "", box, (middle,), True)


def asked(request: dict[str, Any]) -> tuple[str, str]:
    """The text of the last message, and the digest of its picture."""
    content = request["messages"][-1]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    pictures = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    data = base64.b64decode(pictures[-1].partition(",")[2]) if pictures else b""
    return text, hashlib.sha256(data).hexdigest()
