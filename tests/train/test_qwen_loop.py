"""A model of Qwen3-VL's family plays, learns from what it played by the command line, and plays again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from holotron.actions.action import Click
from holotron.agent.agent import StepRecord
from holotron.agent.formats.base import ParsedAnswer
from holotron.agent.in_process import loaded
from holotron.agent.policy_format import find_format, format_of
from holotron.cli.main import app
from holotron.env.task import Task
from holotron.episodes.record import EnvironmentInfo, Outcome, PolicyInfo
from holotron.episodes.recording import step_of
from holotron.episodes.store import EpisodeStore
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.image import load_image
from holotron.model.initialize import random_model
from holotron.model.loading import load
from holotron.model.text.policy_tokenizer import save_policy_texts
from holotron.model.tiling import ImageProcessor

from .samples import qwen_config
from .test_tokens_learned import KINDS, STYLE, TASK, play, short_words

__all__ = ["short_words"]  # a fixture: published prompts are cut short

FORMAT = replace(find_format("qwen-vl").with_kinds(KINDS), keep_images=2)
RECIPE = """
name = "loop"
stage = "navigation"
start = "start"
steps = 8
log_every = 1
workers = 0
dtype = "float32"
data = [{ store = "episodes", successes = false }]
lora = { rank = 4 }
feature_cache = { folder = "features" }
[batch]
tokens = 8192
patches = 512
learned = 512
sequences = 8
images = 32
[optimizer]
rate = 4e-3
warmup = 1
average = 0.0
"""


def episode(folder: Path) -> list[StepRecord]:
    with loaded(folder, "cpu", style=replace(FORMAT.fitted(STYLE), keep_images=None), memory=2**26) as model:
        return asyncio.run(play(model, FORMAT, 4))


def test_rollout_learning_and_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a random model writes is taken for an action.
    monkeypatch.setattr(type(FORMAT), "parse", lambda *_: ParsedAnswer(Click(x=1, y=2)))
    config = qwen_config("3")
    model = random_model(config, dtype=torch.bfloat16, seed=1)
    with torch.no_grad():
        model.decoder.embeddings.weight.mul_(10)  # low-rank changes inside can then say something
    save_checkpoint(model, tmp_path / "start")
    save_policy_texts(config, tmp_path / "start")
    known = format_of(tmp_path / "start")
    assert known is not None
    assert known.name == "qwen-vl"

    steps = episode(tmp_path / "start")
    store = EpisodeStore(tmp_path / "episodes", sync="never")
    policy = PolicyInfo(model="start", extra={"format": FORMAT.spec})
    with store.begin(Task(text=TASK, name="dog"), policy, EnvironmentInfo(name="pages")) as writer:
        for step in steps:
            writer.add_step(step_of(step), step.observation.image)
        writer.finish(Outcome(reason="step_limit"))

    (tmp_path / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["train", "sft", "recipe.toml", "--out", "run", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.3, [line["loss"] for line in lines]
    assert len(list((tmp_path / "features").rglob("*.features"))) == len({s.observation.image for s in steps})

    # The merged weights are the base with its adapter, and have nothing else changed.
    start, run = tmp_path / "start", tmp_path / "run"
    files = {path.name for path in (run / "weights").iterdir()}
    assert files == {path.name for path in start.iterdir()}
    changed = [name for name in files if (start / name).read_bytes() != (run / "weights" / name).read_bytes()]
    assert changed == ["model.safetensors"]
    merged = load(run / "weights", "cpu", torch.float32)
    base = load(start, "cpu", torch.float32, adapters={"tuned": run / "adapter"})
    assert config.vision is not None
    image = ImageProcessor(config.vision)(load_image(steps[0].observation.image))
    ids = [9, 8, *[config.vision.image_token_id] * image.tokens, 7, 6]
    with torch.no_grad():
        alone, learned = (model.score([ids], model.encode_images([image]), image.grids)[0] for model in (base, merged))
        with base.using("tuned"):
            adapted = base.score([ids], base.encode_images([image]), image.grids)[0]
    assert float((learned - adapted).abs().max()) < 0.02 * float((learned - alone).abs().max()), "weights in 16 bits"
    assert len(episode(run / "weights")) == len(steps)
