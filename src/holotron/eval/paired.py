"""How sure the difference of two scores is that were reached on the same items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from holotron.eval.statistics import Z95

SAMPLES, AT_ONCE = 10_000, 500
FEWEST = 5  # items that are drawn again for an interval


@dataclass(frozen=True)
class Pair:
    """What two policies did on one item: how often each was right, of how many times."""

    right: tuple[int, int]
    of: tuple[int, int]

    @property
    def single(self) -> bool:
        return self.of == (1, 1)


@dataclass(frozen=True)
class PairedDifference:
    """The second's rate minus the first's, with its 95% interval; None where there are too few items for one.

    only_first, only_second, p_value: items that one alone got right, and the exact McNemar test of them; only where
    each item was tried once.
    """

    value: float
    interval: tuple[float, float] | None
    only_first: int | None = None
    only_second: int | None = None
    p_value: float | None = None


def difference(pairs: Sequence[Pair], seed: int = 0) -> PairedDifference:
    """ValueError without pairs."""
    if not pairs:
        raise ValueError("there are no pairs to compare")
    right, of = (np.array([getattr(pair, name) for pair in pairs], dtype=np.int64) for name in ("right", "of"))
    value = _rates(right.sum(0), of.sum(0))
    if not all(pair.single for pair in pairs):
        return PairedDifference(value, _bootstrap(right, of, seed) if len(pairs) >= FEWEST else None)
    first, second = (sum(pair.right == who for pair in pairs) for who in ((1, 0), (0, 1)))
    return PairedDifference(value, bonett_price(first, second, len(pairs)), first, second, mcnemar(first, second))


def bonett_price(only_first: int, only_second: int, items: int) -> tuple[float, float]:
    """The 95% interval of a difference of paired rates by Bonett and Price (2012), which holds for few items, too."""
    first, second = (only_first + 1) / (items + 2), (only_second + 1) / (items + 2)
    spread = Z95 * math.sqrt((first + second - (second - first) ** 2) / (items + 2))
    return max(-1.0, second - first - spread), min(1.0, second - first + spread)


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value: a fair coin decides who is right where one is and the other is not."""
    tries, fewer = only_first + only_second, min(only_first, only_second)
    tail = sum(math.comb(tries, k) for k in range(fewer + 1))
    return min(1.0, float(Fraction(2 * tail, 2**tries)))


def _bootstrap(right: np.ndarray, of: np.ndarray, seed: int) -> tuple[float, float]:
    """The 95% interval over items drawn with replacement, both policies' tries of an item together."""
    chance, count = np.random.default_rng(seed), len(right)
    both, found = np.concatenate([right, of], axis=1), np.empty(SAMPLES)
    for start in range(0, SAMPLES, AT_ONCE):
        times = chance.multinomial(count, np.full(count, 1 / count), size=AT_ONCE)
        sums = times @ both
        with np.errstate(invalid="ignore"):  # a draw may have no try of a policy
            found[start : start + AT_ONCE] = sums[:, 1] / sums[:, 3] - sums[:, 0] / sums[:, 2]
    low, high = np.nanquantile(found, (0.025, 0.975))
    return float(low), float(high)


def _rates(right: np.ndarray, of: np.ndarray) -> float:
    return float(right[1] / of[1] - right[0] / of[0])
