"""How many agents an engine holds so that nearly every step is answered in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Figures = dict[str, Any]


def most_held(
    measure: Callable[[int], Figures], most: int, within: float, guess: int | None = None
) -> tuple[int, list[Figures]]:
    """The most agents whose p95 of step latency is within so many seconds, by bisection, and what was measured.

    It is told to one part in twenty: latencies of two runs differ by more than one agent more makes. A guess is tried
    first, and then a sixth more or less than it: a good one leaves little to be searched.
    """
    rows: list[Figures] = []

    def holds(agents: int) -> bool:
        figures = measure(agents)
        rows.append({"agents": agents} | figures)
        return bool(figures["failures"] == 0 and figures["agent_steps"] > 0 and figures["latency_p95"] <= within)

    held, refused = 0, most + 1
    while refused - held > max(1, held // 20):
        tried = (held + refused) // 2
        if guess and not rows:
            tried = min(guess, most)
        elif guess and refused > most:
            tried = min(tried, held + max(1, held // 6))
        elif guess and not held:
            tried = max(tried, refused - max(1, refused // 6))
        if holds(tried):
            held = tried
        else:
            refused = tried
    return held, rows
