"""Ways to say which element is meant, so that exactly one fits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from holotron.suites.kit.words import ORDINALS
from holotron.suites.screens.labels import DRAWN_SIGNS, SHAPES, ScreenElement

LONGEST_NAME = 40
# A name alone names these; of the others it could as well mean the words beside them.
SAID_BY_NAME = frozenset(
    {"button", "link", "tab", "menu item", "text", "heading", "cell", "section", "option", *DRAWN_SIGNS}
)
REACH = 200  # how many pixels something may be from what it is said to be beside; half as many from below or above
# The axis, and whether it stands before what it is said to be beside.
PLACES = {"right of": (0, False), "left of": (0, True), "below": (1, False), "above": (1, True)}


class Describer:
    """Describes the elements of one screen."""

    def __init__(self, elements: Sequence[ScreenElement]) -> None:
        self._all = elements
        # A label and the control it names count as two: the name alone does not tell them apart.
        self._names = [each.name.lower() for each in elements if each.name]
        # Ends of sentences are parts of a longer text and make poor landmarks.
        self._landmarks = [
            each
            for each in elements
            if each.usable and each.quotable and 1 < len(each.name) <= 24 and self._once(each.name)
            if each.name[-1] not in ".,!?"
        ]

    def describe(self, element: ScreenElement, chance: random.Random) -> str | None:
        """One of the descriptions that fit this element alone, or None."""
        ways = list(dict.fromkeys(self.descriptions(element)))
        return chance.choice(ways) if ways else None

    def descriptions(self, element: ScreenElement) -> Iterator[str]:
        kind, name, states = element.kind, element.name, set(element.states)
        if not element.quotable:
            return
        if kind == "label" or len(name) > LONGEST_NAME:
            if kind in ("text", "heading"):
                yield from self._beginning(element)
            return
        alike = [
            each
            for each in self._all
            if each.kind == kind and each.name.lower() == name.lower() and each.color == element.color
        ]
        bare = _bare(element)
        if len(alike) == 1:
            yield from self._plain(element)
            if element.side in ("left", "right") and name and self._names.count(name.lower()) <= 2:
                yield f'the {kind} {"right" if element.side == "left" else "left"} of "{name}"'
            if element.side == "above" and self._names.count(name.lower()) <= 2:
                yield f'the {kind} below "{name}"'
        else:
            yield from self._among(element, alike, bare)
        same_kind = [each for each in self._all if each.kind == kind]
        for state in states & {"checked", "selected", "on", "disabled", "open"}:
            if sum(state in each.states for each in same_kind) == 1:
                yield f"the {state} {kind}" if kind != "section" else f"the {state} section"
        shows = bool(element.value) and "cut" not in states and element.value != "dots"
        if shows and sum(each.value == element.value for each in self._all) == 1:
            yield f'the {kind} {"showing" if kind == "drop-down" else "with"} "{element.value}"'
        if kind == "cell" and element.row and element.column:
            places = [each for each in self._all if (each.row, each.column) == (element.row, element.column)]
            if len(places) == 1:
                yield f'"{element.column}" in the row of "{element.row}"'

    def _plain(self, element: ScreenElement) -> Iterator[str]:
        kind, name = element.kind, element.name
        if kind in SHAPES:
            if element.color:
                yield f"the {element.color} {kind}"
                yield f"{element.color} {kind}"
            if sum(each.kind == kind for each in self._all) == 1:
                yield f"the {kind}"
        elif kind in DRAWN_SIGNS:
            yield f'the {element.color + " " if element.color else ""}"{name}"'
            yield from [name] * self._once(name)
        elif not name:
            yield f"the {kind}"
        elif kind == "icon":
            yield f"the {name} icon"
            yield f'the "{name}" icon'
        else:
            yield f'the "{name}" {kind}'
            yield f'the {kind} "{name}"'
            if kind not in ("text", "heading", "cell"):
                yield f"the {name} {kind}"
            if kind == "text field":
                yield f'the "{name}" field'
            if kind in SAID_BY_NAME and self._once(name):
                yield name
                yield f'"{name}"'

    def _among(self, element: ScreenElement, alike: Sequence[ScreenElement], bare: str) -> Iterator[str]:
        """What tells it from the others like it: its place among them, its row, what is beside it."""
        place = next(index for index, each in enumerate(alike) if each is element)
        if len(alike) <= len(ORDINALS):
            yield f"the {ORDINALS[place]} {bare}"
            if place == len(alike) - 1:
                yield f"the last {bare}"
        if element.row and sum(each.row == element.row for each in alike) == 1:
            yield f'the {bare} in the row of "{element.row}"'
        for word, side in PLACES.items():
            near = []
            for mark in self._landmarks:
                distance = _gap(element, mark, *side)
                if mark is element or distance is None or distance > REACH / (1 + side[0]):
                    continue
                rivals = [_gap(each, mark, *side) for each in alike if each is not element]
                if all(rival is None or rival > distance + 4 for rival in rivals):
                    near.append((distance, mark.name))
            if near:
                yield f'the {bare} {word} "{min(near)[1]}"'

    def _beginning(self, element: ScreenElement) -> Iterator[str]:
        start = " ".join(element.name.split()[:4])
        if (
            sum(each.name.lower().startswith(start.lower()) for each in self._all) == 1
            and 6 <= len(start) <= LONGEST_NAME
        ):
            yield f'the text beginning "{start}"'

    def _once(self, name: str) -> bool:
        return self._names.count(name.lower()) == 1


def _bare(element: ScreenElement) -> str:
    if element.kind in SHAPES:
        return element.coloured_kind
    if element.kind in DRAWN_SIGNS:
        return f'{element.color} "{element.name}"'.strip()
    return f'"{element.name}" {element.kind}' if element.name else element.kind


def _gap(element: ScreenElement, mark: ScreenElement, axis: int, before: bool) -> float | None:
    """How far it is behind a mark, or before it; None where they do not overlap sidewise by half of the smaller."""
    first, second = (element, mark) if before else (mark, element)
    sides = [(each.box[1 - axis], each.box[3 - axis]) for each in (first, second)]
    overlap = min(high for _, high in sides) - max(low for low, _ in sides)
    end, start = first.box[axis + 2], second.box[axis]
    return start - end if overlap >= 0.5 * min(high - low for low, high in sides) and start >= end - 1 else None
