"""How sure a rate is."""

from __future__ import annotations

import math

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
