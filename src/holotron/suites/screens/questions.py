"""Questions about a screen and their answers, a line each.

`Find: WHAT` is answered by a point, `Read: POINT` by the text there, `What: POINT` by the kind, name and state of what
is there, `Screen:` by one line for each thing that can be operated. Points are {"x":…,"y":…} in thousandths.

All questions stand before the screen, as a task does: a policy that answers looks at it knowing what for. No answer
may follow from another one: each thing is asked about once, and points are asked for before texts are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from holotron.actions.coordinates import from_pixels
from holotron.episodes.examples import Example, ExampleTurn
from holotron.suites.screens.describe import LONGEST_NAME, Describer
from holotron.suites.screens.labels import DRAWN_SIGNS, LONGEST, SHAPES, STATIC, ScreenElement, choose
from holotron.suites.screens.rendering import SMALL, Shot

FIND, READ, WHAT, SCREEN = "Find: ", "Read: ", "What: ", "Screen:"
FIND_CHANCE = 0.75
SINGLE_CHANCE = 0.2
FEWEST, MOST, MOST_ON_LARGE = 3, 10, 14
SCREEN_CHANCE = 0.25
SCREEN_LINES, SCREEN_BYTES = 12, 600


def ask(shot: Shot, kind: str, chance: random.Random) -> Example | None:
    """One or several questions about a screenshot; None where there is nothing to ask about."""
    most = 1
    if chance.random() >= SINGLE_CHANCE:
        most = chance.randint(FEWEST, MOST if shot.width < SMALL else MOST_ON_LARGE)
    describer = Describer(shot.elements)
    points: dict[str, str] = {}
    texts: dict[str, str] = {}
    taken: list[ScreenElement] = []
    for element in choose(shot.elements, chance, 3 * most):
        if len(taken) == most:
            break
        if any(_tell_of_each_other(element, other) for other in taken):
            continue
        if chance.random() < FIND_CHANCE and (described := describer.describe(element, chance)) is not None:
            points[FIND + described] = point_text(shot, element.middle)
        elif (asked := _text(shot, element, chance)) is not None:
            texts.setdefault(*asked)
        else:
            continue
        taken.append(element)
    turns = _shuffled(points, chance) + _shuffled(texts, chance)
    if (not turns or len(turns) > 1) and chance.random() < SCREEN_CHANCE and (screen := parse_screen(shot)):
        turns.append((SCREEN, screen))
    if not turns:
        return None
    said, answers = zip(*turns, strict=True)
    return Example(kind, (ExampleTurn("\n".join(said), "\n".join(answers), shot.png),), shot.about)


def pairs(turn: ExampleTurn) -> list[tuple[str, str]]:
    """Each question of a turn with its answer. Only the last, a whole screen's, has several lines."""
    said = turn.said.splitlines()
    return list(zip(said, turn.answer.split("\n", len(said) - 1), strict=True))


def _text(shot: Shot, element: ScreenElement, chance: random.Random) -> tuple[str, str] | None:
    """What is said at a place, or what is there."""
    point = point_text(shot, chance.choice(element.spots))
    described = describe_state(element)
    readable = 0 < len(element.text) <= LONGEST
    if readable and (described is None or chance.random() < 0.5):
        return READ + point, element.text
    return None if described is None else (WHAT + point, described)


def _tell_of_each_other(one: ScreenElement, other: ScreenElement) -> bool:
    """Whether an answer about one gives away the other: they lie upon each other, or are called the same."""
    (left, top, right, bottom), (left2, top2, right2, bottom2) = one.box, other.box
    if left < right2 and left2 < right and top < bottom2 and top2 < bottom:
        return True
    said = [{text.lower() for text in (each.name, each.text, each.value) if text} for each in (one, other)]
    return bool(said[0] & said[1])


def _shuffled(asked: dict[str, str], chance: random.Random) -> list[tuple[str, str]]:
    turns = list(asked.items())
    chance.shuffle(turns)
    return turns


def describe_state(element: ScreenElement) -> str | None:
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
        line = f"{entry(element)} {point_text(shot, element.middle)}"
        size += len(line.encode()) + 1
        if len(lines) == SCREEN_LINES or size > SCREEN_BYTES + 1:
            break
        lines.append(line)
    return "\n".join(lines) if len(lines) > 1 else ""


def entry(element: ScreenElement) -> str:
    if element.kind in SHAPES:
        return element.coloured_kind
    kind = element.coloured_kind if element.kind in DRAWN_SIGNS else element.kind
    return f'{kind} "{element.name}"' if element.name else kind


def point_text(shot: Shot, pixel: Sequence[int]) -> str:
    """A pixel of a screen as questions and answers write it."""
    x, y = from_pixels(pixel[0], pixel[1], shot.width, shot.height)
    return f'{{"x":{x},"y":{y}}}'
