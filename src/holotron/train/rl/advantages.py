"""Advantages: how much better an attempt, or a step of it, was than the others of its group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from statistics import fmean, stdev

# Rewards of a group whose standard deviation is almost 0 must not become large numbers.
EPSILON = 1e-6


def group_advantages(values: Sequence[float], by_std: bool = False) -> list[float]:
    """Each value less the mean of all; by_std: divided by their standard deviation, too, as in the first GRPO."""
    if len(values) < 2:
        return [0.0] * len(values)
    mean = fmean(values)
    scale = 1 / (stdev(values) + EPSILON) if by_std else 1.0
    return [(value - mean) * scale for value in values]


def discounted_returns(reward: float, steps: int, discount: float) -> list[float]:
    """What a reward at the end is worth at each step."""
    return [reward * discount ** (steps - 1 - step) for step in range(steps)]


def step_advantages(
    states: Sequence[Sequence[Hashable]], returns: Sequence[Sequence[float]], by_std: bool = False
) -> list[list[float]]:
    """Of each step of each attempt, compared with all steps of the group that began in the same state (GiGPO).

    A state that was seen once has nothing to be compared with: 0.
    """
    same: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for attempt, seen in enumerate(states):
        for step, state in enumerate(seen):
            same[state].append((attempt, step))
    found = [[0.0] * len(seen) for seen in states]
    for places in same.values():
        values = group_advantages([returns[attempt][step] for attempt, step in places], by_std)
        for (attempt, step), value in zip(places, values, strict=True):
            found[attempt][step] = value
    return found


def teaches(rewards: Sequence[float]) -> bool:
    """Whether a group says anything: with equal rewards, all advantages are 0."""
    return len(rewards) > 1 and max(rewards) - min(rewards) > EPSILON
