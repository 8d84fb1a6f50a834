"""What the page says is on the screen, and which of it is worth asking about."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST = 60
SHAPES = frozenset({"rectangle", "square", "circle", "ellipse", "triangle", "polygon"})
STATIC = frozenset({"text", "label", "heading", "image", "cell"})
DRAWN_SIGNS = frozenset({"letter", "digit", "sign"})
# Colours by the name a person would give them; what is near none has no name.
COLORS = {
    "red": (255, 0, 0), "blue": (0, 0, 255), "green": (0, 128, 0), "yellow": (255, 255, 0), "orange": (255, 165, 0),
    "purple": (128, 0, 128), "pink": (255, 192, 203), "black": (0, 0, 0), "white": (255, 255, 255),
    "grey": (128, 128, 128), "brown": (165, 42, 42), "cyan": (0, 255, 255), "magenta": (255, 0, 255),
    "lime": (0, 255, 0),
}  # fmt: skip
# Letters, digits and signs that fonts everywhere can draw.
READABLE = re.compile(
    r"[\x20-\x7e\xa1-\xac\xae-\xff\u0100-\u017f\u2013\u2014\u2018\u2019\u201c\u201d\u2022\u2026\u20ac\u2122\u00d7]+"
)


@dataclass(frozen=True)
class ScreenElement:
    """Something on a screen.

    name: what it is called, by text that can be seen or a drawing's meaning. text: what can be read on it.
    value: what a field holds; None for what is no field. side: where the name stands ("left", "right", "above",
    "inside"). spots: pixels at which nothing else is touched, the middle first. usable: false for what is cut off,
    covered, too small or too large; it is only there to be told from others.
    """

    kind: str
    name: str
    text: str
    value: str | None
    states: tuple[str, ...]
    side: str
    color: str
    row: str
    column: str
    box: tuple[float, float, float, float]
    spots: tuple[tuple[int, int], ...]
    usable: bool

    @property
    def quotable(self) -> bool:
        """Whether its name and value can stand in quotes, and are more than punctuation."""
        words = sum(letter.isalnum() for letter in self.name)
        plain = (
            not self.name
            or self.kind not in STATIC
            or ((words > 1 or len(self.name) == 1) and words >= len(self.name) / 2)
        )
        return plain and '"' not in self.name + (self.value or "")

    @property
    def coloured_kind(self) -> str:
        return f"{self.color} {self.kind}".strip()

    @property
    def middle(self) -> tuple[int, int]:
        return self.spots[0]


@dataclass(frozen=True)
class Writing:
    """The words that can be read on a screen, with the pixel row of each and the column of each character's middle.

    unread: boxes in which there may be more: what is typed into fields, pictures, words that are covered in part.
    """

    words: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    unread: tuple[tuple[float, float, float, float], ...] = ()


def from_page(found: Mapping[str, Any]) -> tuple[tuple[ScreenElement, ...], Writing]:
    """What labels.js found: elements in reading order, without those whose text cannot be read or quoted, and words."""
    elements = [_element(each) for each in found["elements"]]
    words = tuple((text, row, tuple(columns)) for text, row, columns in found["words"])
    writing = Writing(words, tuple((box[0], box[1], box[2], box[3]) for box in found["unread"]))
    return tuple(in_reading_order(each for each in elements if each.kind)), writing


def in_reading_order(elements: Iterable[ScreenElement]) -> list[ScreenElement]:
    """Line by line: what shares most of its height with the first of a line belongs to that line."""
    left = sorted(elements, key=lambda each: (each.box[1] + each.box[3], each.box[0]))
    ordered: list[ScreenElement] = []
    while left:
        first = left[0]
        middle = (first.box[1] + first.box[3]) / 2
        line = [each for each in left if each is first or each.box[1] < middle < each.box[3]]
        # Something tall, such as a text area, does not begin the line of what stands beside its top.
        line = [each for each in line if (each.box[1] + each.box[3]) / 2 - middle < first.box[3] - first.box[1]]
        ordered += sorted(line, key=lambda each: each.box[0])
        chosen = set(map(id, line))
        left = [each for each in left if id(each) not in chosen]
    return ordered


def choose(elements: Sequence[ScreenElement], chance: random.Random, most: int) -> list[ScreenElement]:
    """Up to `most` usable elements, evenly over their kinds, static ones at most a third where there are others."""
    kinds: dict[str, list[ScreenElement]] = {}
    for element in elements:
        if element.usable:
            kinds.setdefault(element.kind, []).append(element)
    for group in kinds.values():
        chance.shuffle(group)
    order = sorted(kinds)
    chance.shuffle(order)
    chosen: list[ScreenElement] = []
    still = sum(element.usable and element.kind in STATIC for element in elements)
    for static in (False, True):
        groups = [kinds[kind] for kind in order if (kind in STATIC) == static]
        room = most - len(chosen) if static else max(most - still, round(most * 0.67))
        while room > 0 and any(groups):
            for group in groups:
                if group and room > 0:
                    chosen.append(group.pop())
                    room -= 1
    chance.shuffle(chosen)
    return chosen


def color_name(paint: str) -> str:
    """The name of an rgb() colour, or nothing."""
    numbers = re.findall(r"[\d.]+", paint)
    if len(numbers) != 3:
        return ""
    red, green, blue = (float(number) for number in numbers)
    distance, name = min((abs(red - r) + abs(green - g) + abs(blue - b), name) for name, (r, g, b) in COLORS.items())
    return name if distance <= 60 else ""


def _element(found: Mapping[str, Any]) -> ScreenElement:
    name, text = _plain(found["name"]), _plain(found["text"])
    if found["side"]:  # the caption of a field: what marks it as one is no part of its name
        name = name.rstrip(" :*") or name
    value = None if found["value"] is None else _plain(found["value"])
    readable = all(not each or READABLE.fullmatch(each) for each in (name, text, value or ""))
    kind, row, column = found["kind"], _plain(found["row"]), _plain(found["column"])
    if kind == "letter" and not name.isalpha():
        kind = "digit" if name.isdigit() else "sign"
    return ScreenElement(
        kind,
        name,
        text,
        value,
        tuple(found["states"]),
        found["side"],
        color_name(found["color"]),
        "" if '"' in row else row,
        "" if '"' in column else column,
        tuple(found["box"]),
        tuple((spot[0], spot[1]) for spot in found["spots"]),
        bool(found["usable"]) and readable,
    )


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
