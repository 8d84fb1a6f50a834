"""Stolen time is read where the kernel tells it, and unknown elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holotron.eval import cpu_steal


def test_stolen_time_is_what_the_kernel_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, tick = tmp_path / "stat", os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(cpu_steal, "STAT", stat)
    assert cpu_steal.stolen_seconds() is None
    assert cpu_steal.stolen_since(None) is None
    stat.write_text(f"cpu  1 2 3 4 5 6 7 {3 * tick} 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    before = cpu_steal.stolen_seconds()
    assert before == 3
    stat.write_text(f"cpu  1 2 3 4 5 6 7 {4 * tick} 9 10\n")
    assert cpu_steal.stolen_since(before) == 1
    stat.write_text("cpu  1 2\n")
    assert cpu_steal.stolen_since(before) is None
