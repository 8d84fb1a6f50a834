"""`holotron bench grpo`: a whole iteration of online RL over screenshots, with one copy of the frozen weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holotron.bench.__main__ import main
from holotron.bench.screens import draw_screen, png
from holotron.model.presets import PRESETS, Preset
from tests.train.rl.samples import TINY


def test_an_iteration_of_a_tiny_shape_is_played_and_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "tiny-policy", Preset(TINY, None, "for tests"))
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr("holotron.bench.__main__.write_json", lambda _, report: reports.append(report))
    for kind in range(5):
        (tmp_path / f"{kind}.png").write_bytes(png(draw_screen((64, 48), kind, 1.0)))
    words = "grpo --preset tiny-policy --groups 2 --group-size 4 --learned 2 --steps 2 --answer 6 --lora 4"
    more = [
        "--memory",
        "0.1",
        "--device",
        "cpu",
        "--screens",
        str(tmp_path),
        "--no-compile",
        "--json",
        "--out",
        str(tmp_path / "out.json"),
    ]
    assert main([*words.split(), *more]) == 0
    [report] = reports
    assert (report["kept"], report["lost"], report["episode_steps"]) == (2, 0, 2.0)
    assert report["answer_tokens"] > 6
    parts = report["seconds_by_part"]
    assert parts.keys() == {"rollout", "reading", "logprobs", "packing", "learning", "weights", "agreement"}
    assert min(parts.values()) > 0
    assert sum(parts.values()) <= report["seconds"]  # none is counted twice
    assert report["seconds_to_prepare"].keys() == {"model", "compiling", "engine"}
    # All tokens of the first update were drawn by the weights that are compared.
    assert report["fresh_tokens"] > 0
    assert report["logprob_difference"] < 1e-5
    assert report["scored_difference"] < 1e-5
    assert report["gradient"] > 0
