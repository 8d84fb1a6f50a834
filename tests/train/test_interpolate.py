"""Weights between two checkpoints: exact at the ends, the mean in the middle, and only between what is alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from holotron.agent.policy_format import NANO, format_of, save_format
from holotron.cli.main import app
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.errors import CheckpointError
from holotron.model.initialize import random_model
from holotron.model.loading import load
from holotron.model.text.policy_tokenizer import save_policy_texts
from holotron.train.interpolate import InterpolationError, interpolate

from .samples import CONFIG


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("interpolate")
    for seed, name in enumerate(("one", "two")):
        save_checkpoint(random_model(CONFIG, dtype=torch.bfloat16, seed=seed), made / name)
        save_policy_texts(CONFIG, made / name)
        save_format(NANO, made / name)
    return made


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: weight.detach() for name, weight in load(folder, "cpu").named_parameters()}


@pytest.mark.parametrize(("share", "same"), [(0.0, "one"), (1.0, "two")])
def test_the_ends_are_the_checkpoints_themselves(folder: Path, tmp_path: Path, share: float, same: str) -> None:
    made, wanted = weights(interpolate(folder / "one", folder / "two", tmp_path / "out", share)), weights(folder / same)
    assert all(torch.equal(made[name], weight) for name, weight in wanted.items())
    assert format_of(tmp_path / "out") == NANO
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (folder / "one" / "tokenizer.json").read_bytes()


def test_the_middle_is_the_mean(folder: Path, tmp_path: Path) -> None:
    one, two = weights(folder / "one"), weights(folder / "two")
    for name, weight in weights(interpolate(folder / "one", folder / "two", tmp_path / "out")).items():
        mean = (one[name].float() + two[name].float()) / 2
        assert weight.dtype == one[name].dtype
        assert torch.equal(weight, mean.to(weight.dtype)), name


def test_different_models_are_refused_and_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    wider = replace(CONFIG, hidden_size=2 * CONFIG.hidden_size)
    save_checkpoint(random_model(wider, dtype=torch.bfloat16), tmp_path / "wider")
    with pytest.raises(InterpolationError, match="different models"):
        interpolate(folder / "one", tmp_path / "wider", tmp_path / "out")
    with pytest.raises(InterpolationError, match="between 0"):
        interpolate(folder / "one", folder / "two", tmp_path / "out", 1.5)
    broken = random_model(CONFIG, dtype=torch.bfloat16)
    broken.decoder.norm_f.weight.data[0] = float("nan")
    save_checkpoint(broken, tmp_path / "broken")
    with pytest.raises(CheckpointError, match="damaged"):
        interpolate(folder / "one", tmp_path / "broken", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_there_already_is_not_overwritten(folder: Path) -> None:
    before = weights(folder / "two")
    with pytest.raises(CheckpointError, match="not empty"):
        interpolate(folder / "one", folder / "two", folder / "two")
    assert all(torch.equal(before[name], weight) for name, weight in weights(folder / "two").items())


def test_the_command(folder: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["train", "interpolate", f"{folder}/one", f"{folder}/two", "--out", f"{tmp_path}/out"]
    )
    assert done.exit_code == 0, done.output
    assert "holotron demo --model" in done.output
    done = CliRunner().invoke(
        app, ["train", "interpolate", f"{folder}/one", f"{folder}/none", "--out", f"{tmp_path}/other"]
    )
    assert done.exit_code == 1
    assert "none" in done.output
