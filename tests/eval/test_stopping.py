"""What counts as stopping well: by the rewards of an episode's steps and how it ended."""

from __future__ import annotations

from typing import Any

import pytest

from holotron.episodes.record import EpisodeInfo, ObservationRecord, Outcome, Result, Step
from holotron.eval.stopping import KINDS, how_stopped, stopping_rates


def stopped(rewards: list[float | None], reason: Any, success: bool) -> str | None:
    info = EpisodeInfo.model_construct(outcome=Outcome(reason=reason, success=success, reward=float(success)))
    seen = ObservationRecord(width=8, height=8)
    steps = [Step(index=at, observation=seen, result=Result(reward=reward)) for at, reward in enumerate(rewards)]
    return how_stopped(info, steps)


@pytest.mark.parametrize(
    ("rewards", "reason", "success", "kind"),
    [
        ([0, 1, 1], "answered", True, "right"),
        ([1], "answered", True, "right"),  # it was done when the episode began
        ([0], "infeasible", True, "right"),  # and could not be done
        ([0, None, 1, 1], "answered", True, "right"),  # one answer was no action
        ([0, 1, 1, 1], "answered", True, "late"),
        ([0, 0], "answered", False, "premature"),
        ([0, 0], "infeasible", False, "premature"),
        ([0, 1, 1, 1], "step_limit", False, "never"),
        ([0, 1, 1], "step_limit", True, "never"),  # at the last step it had no choice but to answer
        ([0, 1, 0, 0], "answered", False, "spoiled"),
        ([0, 1, 0], "done", False, "spoiled"),
        ([0, 0, 0], "step_limit", False, "undone"),
        ([0, 0], "done", False, "undone"),
        ([None, None], "answered", True, None),  # a question
    ],
)
def test_every_way_to_stop_has_a_name(
    rewards: list[float | None], reason: str, success: bool, kind: str | None
) -> None:
    assert stopped(rewards, reason, success) == kind


def test_shares_are_of_the_episodes_that_tell() -> None:
    rates = stopping_rates(["right", "right", "late", None, "spoiled"])
    assert rates["episodes"] == 4
    assert {kind: rates[kind]["share"] for kind in KINDS} == dict.fromkeys(KINDS, 0) | {
        "right": 0.5,
        "late": 0.25,
        "spoiled": 0.25,
    }
    assert stopping_rates([None]) == {"episodes": 0}
