"""`holotron bench train`: real steps over synthetic episodes, their arithmetic counted by what learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holotron.bench.__main__ import main
from holotron.model.initialize import random_model
from holotron.model.presets import PRESETS, Preset
from holotron.train.flops import Passes
from holotron.train.lora import LoraConfig, add_lora
from tests.train.samples import CONFIG


def test_steps_of_a_tiny_shape_are_learned_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PRESETS, "tiny-policy", Preset(CONFIG, None, "for tests"))
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr("holotron.bench.__main__.write_json", lambda _, report: reports.append(report))
    words = "train --preset tiny-policy --tokens 900 --steps 3 --screen 64x64 --answer 8 --lora 4 --device cpu"
    run = [*words.split(), "--no-compile", "--warmup", "0", "--measured", "1", "--json", "--out", str(tmp_path / "a")]
    for more in ([], ["--train-tower", "--recompute", "none"]):
        assert main([*run, *more]) == 0
    frozen, tower = reports
    assert frozen["loss"] == pytest.approx(tower["loss"])  # the same model and batch, learned or not
    assert frozen["images"] == 3
    assert set(frozen["seconds_by_part"]) > {"tower forward", "decoder forward", "backward", "optimizer"}
    # Gradients pass through the tower as well: twice its products, and nothing computed again.
    assert frozen["model_flops_per_step"] < tower["model_flops_per_step"]
    assert frozen["hardware_tflops_per_second"] > frozen["model_tflops_per_second"]
    assert tower["hardware_tflops_per_second"] == tower["model_tflops_per_second"]


def test_passes_are_counted_by_what_learns() -> None:
    model = random_model(CONFIG)
    assert Passes.of(model) == Passes(3.0, 3.0, 3.0)
    assert model.vision is not None
    model.vision.requires_grad_(False)
    assert Passes.of(model) == Passes(1.0, 3.0, 3.0)
    add_lora(model, LoraConfig(rank=2))
    assert Passes.of(model) == Passes(1.0, 1.0, 2.0)
