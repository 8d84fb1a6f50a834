"""Circles are seen in screens and actions alone, and work that goes on is left in peace."""

from __future__ import annotations

import pytest

from holotron.actions.action import Click, Scroll, Wait
from holotron.agent.stuck import StuckDetector, StuckLimits

HERE, THERE = Click(x=1, y=1), Click(x=2, y=2)


def steps_until_stuck(steps):
    detector = StuckDetector(StuckLimits())
    for number, (screen, action) in enumerate(steps, 1):
        if why := detector.add(screen.encode(), "http://x/", action):
            return number, why
    return None


@pytest.mark.parametrize(
    ("steps", "number", "words"),
    [
        ([("a", HERE)] * 9, 3, "same action"),
        ([("a", Wait(seconds=1))] * 9, 8, "nothing on the screen"),
        ([("a", Click(x=n, y=1)) for n in range(9)], 8, "nothing on the screen"),
        ([("a", HERE), ("b", THERE)] * 5, 6, "same 2 screens 3 times"),
        ([("a", HERE), ("b", HERE), ("c", HERE)] * 5, 9, "same 3 screens 3 times"),
    ],
)
def test_circles(steps, number, words):
    found = steps_until_stuck(steps)
    assert found is not None
    assert found[0] == number
    assert words in found[1]


@pytest.mark.parametrize(
    "steps",
    [
        [(str(n), HERE) for n in range(50)],  # the same button, and something comes of it
        [(str(n // 2), (HERE, THERE)[n % 2]) for n in range(50)],
        [("a", HERE), ("b", THERE), ("a", HERE), ("b", Scroll(direction="down")), ("c", HERE)] * 1,
    ],
)
def test_work_is_no_circle(steps):
    assert steps_until_stuck(steps) is None


def test_another_address_is_another_screen():
    detector = StuckDetector(StuckLimits())
    assert not any(detector.add(b"a", f"http://x/{n}", HERE) for n in range(20))
