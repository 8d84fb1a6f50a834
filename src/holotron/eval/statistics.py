"""How sure a rate is, and how long something takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

Z95 = 1.959964


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95% interval of a rate; (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    rate, z2 = successes / trials, Z95**2
    center = rate + z2 / (2 * trials)
    spread = Z95 * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    scale = 1 + z2 / trials
    return max(0.0, (center - spread) / scale), min(1.0, (center + spread) / scale)


def pass_at(k: int, attempts: int, successes: int) -> float:
    """The chance that at least one of k attempts succeeds, estimated from more of them without bias."""
    return 1 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def typical(seconds: Sequence[float]) -> dict[str, float]:
    """How long something takes: half of all times, 19 of 20, and the longest. Empty without times."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    rank = math.ceil(0.95 * len(ordered)) - 1
    return {"median": ordered[len(ordered) // 2], "p95": ordered[rank], "longest": ordered[-1]}
