"""The whole loop, small: data from real browsers, two stages, and a policy that is better for it in the browser."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holotron.eval.sweep import play_share
from holotron.eval.worker_pool import Share
from holotron.suites.miniwob.oracle.collect import Collecting, collect

from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import AttentionConfig, MambaConfig, MlpConfig, ModelConfig, VisionConfig
from holotron.model.initialize import random_model
from holotron.model.text.policy_tokenizer import save_policy_texts
from holotron.suites.screens.generate import GroundSettings, generate
from holotron.train.batches import BatchBudget
from holotron.train.optimizer import OptimizerConfig
from holotron.train.recipe import Recipe, Source
from holotron.train.sft import Trainer

CONFIG = ModelConfig(
    name="tiny-policy",
    pattern="M-*-",
    hidden_size=96,
    vocab_size=2368,
    tied_embeddings=True,
    mamba=MambaConfig(heads=6, head_dim=32, state_size=16, groups=1, chunk_size=64),
    attention=AttentionConfig(heads=3, kv_heads=1, head_dim=32),
    mlp=MlpConfig(192),
    vision=VisionConfig(
        width=96,
        depth=3,
        heads=3,
        mlp_size=192,
        max_image_size=256,
        prefix_tokens=1,
        projector_size=128,
        mode="dynamic",
        min_patches=16,
        max_patches=160,
        image_token_id=5,
        image_start_token_id=6,
        image_end_token_id=7,
    ),
)
TASK = "click-test"  # a button somewhere on the page
EPISODES = 8


def stage(folder: Path, name: str, start: Path, data: str, steps: int) -> Path:
    recipe = Recipe(
        name=name,
        stage=name,
        start=str(start),
        steps=steps,
        data=(Source(shards=str(folder / data)),),
        dtype="float32",
        workers=0,
        log_every=50,
        keep_every=10**6,
        coordinate_sigma=12.0,
        batch=BatchBudget(tokens=1024, patches=2240, learned=320, sequences=16, images=16),
        optimizer=OptimizerConfig(kind="muon", rate=3e-3, warmup=10, average=0.9, decay=0.4),
    )
    return Trainer(recipe, folder / name, "cpu").run()


def solved(model: Path) -> int:
    """How many held-out episodes it solves with its first action."""
    episodes = tuple((TASK, 10**9 + seed, 1) for seed in range(EPISODES))
    share = Share(str(model), "cpu", episodes, at_once=2, threads=1, max_tokens=24)
    return sum((episode.reward or 0) > 0 for episode in play_share(share))


def test_a_policy_gets_better_from_data_to_browser(tmp_path: Path) -> None:
    save_checkpoint(random_model(CONFIG), tmp_path / "start")
    save_policy_texts(CONFIG, tmp_path / "start")
    generate(GroundSettings(out=tmp_path / "ground", samples=16, mix={"widgets": 1}))
    asyncio.run(collect(Collecting(tmp_path / "oracle", (TASK,), episodes=72, pages=3, noise=0.0)))
    localized = stage(tmp_path, "localization", tmp_path / "start", "ground", 6)
    trained = stage(tmp_path, "navigation", localized, "oracle", 80)
    before, after = solved(tmp_path / "start"), solved(trained)
    assert after >= EPISODES // 2
    assert after > before + 2
