"""What a run tells of itself."""

from __future__ import annotations

from dataclasses import fields

import pytest

from holotron.train.__main__ import line_of
from holotron.train.meter import Progress, suite_of
from holotron.train.sinks import figures_of


@pytest.mark.parametrize(("rate", "words"), [(0.2, "42.0 s/step"), (31.7, "32 samples/s")])
def test_slow_steps_are_told_in_seconds(rate, words):
    line = line_of(told(samples_per_second=rate), step_seconds=42.0)
    assert words in line
    assert " 0 samples/s" not in line


def told(**changes):
    """Figures of a step, all but some of them 1."""
    values = {field.name: 1.0 for field in fields(Progress)} | {"step": 3, "steps": 9, "kinds": {}, "evaluation": None}
    return Progress(**values | {"loss_by_suite": {}} | changes)


def test_a_line_has_what_a_user_watches():
    found = {"suite": "miniwob", "step": 2, "success_rate": 0.25, "episodes": 4}
    changes = {"loss_by_suite": {"miniwob": 0.5, "pages": 1.5}, "memory": 61.25, "share_of_peak": 0.412}
    line = line_of(told(**changes, tokens_per_second=12345.0, gradient=0.75, evaluation=found), 1.0)
    assert line.startswith("step 3/9 loss 1.0000 (miniwob 0.5000, pages 1.5000, held out 1.0000) gradient 0.75 rate")
    assert "12,345 tokens/s, 41.2% of peak, 61.2 GiB" in line
    assert line.endswith("miniwob with the weights of step 2: 25.0% of 4 episodes solved")
    assert "evaluation/success_rate" in figures_of(told(evaluation=found))
    assert figures_of(told(**changes))["loss_by_suite/pages"] == 1.5
    assert "ended with 1: no browser" in line_of(
        told(evaluation={"suite": "miniwob", "step": 2, "error": "holotron eval ended with 1: no browser"}), 1.0
    )


@pytest.mark.parametrize(
    ("kind", "suite"), [("squares", "squares"), ("miniwob/click-test", "miniwob"), ("dagger/pages/shop", "pages")]
)
def test_an_example_is_of_a_suite(kind, suite):
    assert suite_of(kind) == suite
