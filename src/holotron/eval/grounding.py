"""Where a small policy points when asked for an element of a screen it has never seen.

An answer is right if it lies in the element's box.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from holotron.actions.action import ActionError
from holotron.actions.coordinates import Space
from holotron.agent.prompts import POINT_SCHEMA, parse_point
from holotron.eval.screens import QuestionKind, Screen, ScreenAnswer, ScreenQuestion
from holotron.suites.screens.describe import Describer
from holotron.suites.screens.labels import ScreenElement, choose
from holotron.suites.screens.questions import FIND
from holotron.suites.screens.rendering import Shot

QUESTIONS = 4  # of one screen
SIDES = (12, 20, 32, 64)  # pixels: the shorter side of an element, below each bound and above the last


@dataclass(frozen=True)
class Pointed(ScreenAnswer):
    """No point: the answer was none."""

    kind: str
    description: str
    box: tuple[float, float, float, float]
    point: tuple[int, int] | None
    size: tuple[int, int]

    @property
    def right(self) -> bool:
        left, top, right, bottom = self.box
        return self.point is not None and left <= self.point[0] <= right and top <= self.point[1] <= bottom

    @property
    def side(self) -> str:
        side = min(self.box[2] - self.box[0], self.box[3] - self.box[1])
        bound = next((bound for bound in SIDES if side < bound), None)
        return f"under {bound}" if bound else f"{SIDES[-1]} and more"


def questions(shot: Shot, screen: Screen) -> Iterator[ScreenQuestion[Pointed]]:
    chance = random.Random("grounding/{}/{}".format(*screen))
    describer, space = Describer(shot.elements), Space("pixels", shot.width, shot.height)

    def ask(element: ScreenElement, description: str) -> ScreenQuestion[Pointed]:
        def pointed(said: str, seconds: float) -> Pointed:
            try:
                point = space.from_relative(*parse_point(said))
            except ActionError:
                point = None
            return Pointed(*screen, seconds, element.kind, description, element.box, point, (shot.width, shot.height))

        return ScreenQuestion(FIND + description, pointed, POINT_SCHEMA)

    for element in choose(shot.elements, chance, QUESTIONS):
        description = describer.describe(element, chance)
        if description is not None:
            yield ask(element, description)


GROUNDING = QuestionKind(
    questions,
    {
        "by_side": (lambda each: each.side, (*(f"under {side}" for side in SIDES), f"{SIDES[-1]} and more")),
        "by_kind": (lambda each: each.kind, ()),
    },
)
# The same screens at several heights: what it points at, not where it remembers things to be.
HEIGHTS = QuestionKind(questions, {"by_height": (lambda each: f"{each.height} px high", ())})
