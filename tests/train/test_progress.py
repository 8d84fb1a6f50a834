"""What a run tells of itself."""

from __future__ import annotations

from dataclasses import fields

import pytest

from holotron.train.__main__ import line_of
from holotron.train.meter import Progress


@pytest.mark.parametrize(("rate", "words"), [(0.2, "42.0 s/step"), (31.7, "32 samples/s")])
def test_slow_steps_are_told_in_seconds(rate, words):
    values = {field.name: 1.0 for field in fields(Progress)} | {"samples_per_second": rate, "step": 3, "steps": 9}
    line = line_of(Progress(**values), step_seconds=42.0)
    assert words in line
    assert " 0 samples/s" not in line
