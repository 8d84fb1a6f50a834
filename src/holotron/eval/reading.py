"""What a small policy reads at a place of a screen it has never seen.

An answer is right if it is the text, letter for letter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holotron.eval.screens import QuestionKind, Screen, ScreenAnswer, ScreenQuestion
from holotron.suites.screens.labels import LONGEST, ScreenElement
from holotron.suites.screens.questions import READ, point_text
from holotron.suites.screens.rendering import Shot

QUESTIONS = 3  # of one screen


@dataclass(frozen=True)
class ReadOut(ScreenAnswer):
    text: str
    answer: str

    @property
    def right(self) -> bool:
        return self.answer == self.text

    @property
    def wrong(self) -> int:
        """Characters to add, take away or change to get the text, at most as many as it has."""
        return min(len(self.text), distance(self.answer, self.text))


def distance(one: str, other: str) -> int:
    """Characters to add, take away or change to make one text the other."""
    before = list(range(len(other) + 1))
    for row, character in enumerate(one, 1):
        here = [row]
        for column, wanted in enumerate(other, 1):
            here.append(min(before[column] + 1, here[-1] + 1, before[column - 1] + (character != wanted)))
        before = here
    return before[-1]


def questions(shot: Shot, screen: Screen) -> Iterator[ScreenQuestion[ReadOut]]:
    readable = [each for each in shot.elements if each.usable and 0 < len(each.text) <= LONGEST]
    random.Random("reading/{}/{}".format(*screen)).shuffle(readable)

    def ask(element: ScreenElement) -> ScreenQuestion[ReadOut]:
        asked = READ + point_text(shot, element.middle)
        return ScreenQuestion(asked, lambda said, seconds: ReadOut(*screen, seconds, element.text, said.strip()))

    return map(ask, readable[:QUESTIONS])


def _characters(read: Sequence[ReadOut]) -> dict[str, Any]:
    """The share of characters that were read rightly."""
    characters = sum(len(each.text) for each in read)
    return {"characters": 1 - sum(each.wrong for each in read) / characters if characters else None}


READING = QuestionKind(questions, figures=_characters)
