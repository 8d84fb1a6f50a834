"""The baseline that knows nothing: clicks, keys and words at random."""

from __future__ import annotations

import random

from holotron.suites.miniwob.actions import Click, Drag, Press, Primitive, Scroll, TypeText
from holotron.suites.miniwob.observation import MiniWoBObservation

INSTRUCTION_HEIGHT = 50
KEYS = ("Enter", "Tab", "Backspace", "ArrowDown", "ArrowUp", "Control+a", "Control+c", "Control+v")


class RandomPolicy:
    """Uniform over the task's area below the instruction; what it types are words of the instruction.

    The same seed and the same instructions give the same actions.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, observation: MiniWoBObservation) -> Primitive:
        choose = self._random
        kind = choose.choices(("click", "type", "press", "drag", "scroll"), weights=(70, 10, 8, 8, 4))[0]
        match kind:
            case "type":
                return TypeText(choose.choice(observation.utterance.split() or ["a"]).strip("\"'.,?!:"))
            case "press":
                return Press(choose.choice(KEYS))
            case "drag":
                return Drag((self._point(observation), self._point(observation)))
            case "scroll":
                return Scroll(*self._point(observation), dy=choose.choice((-100, 100)))
        return Click(*self._point(observation))

    def _point(self, observation: MiniWoBObservation) -> tuple[int, int]:
        return (
            self._random.randrange(observation.width),
            self._random.randrange(INSTRUCTION_HEIGHT, observation.height),
        )
