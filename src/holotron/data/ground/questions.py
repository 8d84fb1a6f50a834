"""Questions about a screen and their answers.

`Find: WHAT` is answered by a point, `Read: POINT` by the text there, `What: POINT` by the kind, name and state of what
is there, `Screen:` by one line for each thing that can be operated. Points are {"x":…,"y":…} in thousandths.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from holotron.data.ground.describe import Describer
from holotron.data.ground.labels import DRAWN_SIGNS, LONGEST, SHAPES, STATIC, Element, choose
from holotron.data.ground.rendering import SMALL, Shot
from holotron.data.samples import Sample, Turn
from holotron.model.coordinates import from_pixels

FIND, READ, WHAT, SCREEN = "Find: ", "Read: ", "What: ", "Screen:"
SCREEN_LINES, SCREEN_BYTES = 12, 600
SCREEN_CHANCE = 0.35
LONGEST_NAME = 40


def ask(shot: Shot, kind: str, chance: random.Random) -> Sample | None:
    """Several turns over one screenshot; None where there is too little to ask about."""
    small = shot.width < SMALL
    fewest, most = (8, 16) if small else (10, 16)
    elements = choose(shot.elements, chance, 12)
    describer = Describer(shot.elements)

    def find(element: Element) -> tuple[str, str] | None:
        described = describer.describe(element, chance)
        return None if described is None else (FIND + described, _point(shot, element.middle))

    def read(element: Element) -> tuple[str, str] | None:
        if not 0 < len(element.text) <= LONGEST:
            return None
        return READ + _point(shot, chance.choice(element.spots)), element.text

    def what(element: Element) -> tuple[str, str] | None:
        answer = describe_state(element)
        return None if answer is None else (WHAT + _point(shot, chance.choice(element.spots)), answer)

    makers: dict[Callable[[Element], tuple[str, str] | None], float] = {find: 1.0, read: 0.5, what: 0.5}
    wanted = chance.randint(fewest, most)
    asked: dict[str, str] = {}
    if chance.random() < SCREEN_CHANCE and (screen := parse_screen(shot)):
        asked[SCREEN] = screen
    pairs = [(maker, element) for maker in makers for element in elements]
    weights = [makers[maker] * (0.5 if element.kind in STATIC else 1.0) for maker, element in pairs]
    keys = [chance.random() ** (1 / weight) for weight in weights]
    pairs = [pair for _, pair in sorted(zip(keys, pairs, strict=True), key=lambda each: each[0], reverse=True)]
    for maker, element in pairs:
        if len(asked) >= wanted:
            break
        if (turn := maker(element)) is not None:
            asked.setdefault(*turn)
    if len(asked) < 3:
        return None
    turns = list(asked.items())
    chance.shuffle(turns)
    first, *rest = turns
    return Sample(kind, (Turn(*first, shot.png), *(Turn(*turn) for turn in rest)), shot.about)


def describe_state(element: Element) -> str | None:
    """Kind, name and state, as in `check box "Blue", checked`; None where they cannot be told from the pixels."""
    if not element.quotable or len(element.name) > LONGEST_NAME or "cut" in element.states or element.kind == "label":
        return None
    parts = [entry(element)]
    if element.value is not None:
        parts.append(
            "empty" if not element.value else element.value if element.value == "dots" else f'"{element.value}"'
        )
        if len(element.value) > LONGEST_NAME:
            return None
    return ", ".join([*parts, *element.states])


def parse_screen(shot: Shot) -> str:
    """A line for each thing that can be operated, in reading order, as many as fit."""
    lines: list[str] = []
    size = 0
    for element in shot.elements:
        if not (element.usable and element.quotable) or element.kind in STATIC or len(element.name) > LONGEST_NAME:
            continue
        line = f"{entry(element)} {_point(shot, element.middle)}"
        size += len(line.encode()) + 1
        if len(lines) == SCREEN_LINES or size > SCREEN_BYTES + 1:
            break
        lines.append(line)
    return "\n".join(lines) if len(lines) > 1 else ""


def entry(element: Element) -> str:
    if element.kind in SHAPES:
        return f"{element.color} {element.kind}".strip()
    kind = f"{element.color} {element.kind}".strip() if element.kind in DRAWN_SIGNS else element.kind
    return f'{kind} "{element.name}"' if element.name else kind


def _point(shot: Shot, pixel: Sequence[int]) -> str:
    x, y = from_pixels(pixel[0], pixel[1], shot.width, shot.height)
    return f'{{"x":{x},"y":{y}}}'
