"""Random draws, all from one generator: the same seed draws the same page."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """Draws from a random generator, in the order in which they are asked for."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, *options: T) -> T:
        return self.chance.choice(options)

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """Different entries of a list in random order, fewer where it has no more."""
        return self.chance.sample(list(options), min(count, len(options)))

    def maybe(self, probability: float = 0.5) -> bool:
        return self.chance.random() < probability

    def optional(self, probability: float, make: Callable[[], str]) -> str:
        """What is made, or nothing."""
        return make() if self.maybe(probability) else ""

    def number(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return self.chance.randint(low, high)
