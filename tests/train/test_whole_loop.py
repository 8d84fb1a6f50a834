"""The whole loop, small: data from real browsers, two stages, and a policy that is better for it in the browser."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from holotron.agent.agent import Budget as StepBudget
from holotron.agent.chat import ChatOptions
from holotron.agent.in_process import loaded
from holotron.agent.policy_format import NANO_WIDGETS
from holotron.episodes.record import PolicyInfo
from holotron.episodes.shards import Sample, ShardWriter, Turn, said
from holotron.episodes.store import EpisodeStore
from holotron.eval.evaluate import Evaluation, evaluate
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import AttentionConfig, MambaConfig, MlpConfig, ModelConfig, VisionConfig
from holotron.model.initialize import random_model
from holotron.model.text.policy_tokenizer import save_policy_texts
from holotron.suites.miniwob.suite import MiniWoBSuite
from holotron.suites.play import Play, play_tasks
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
SUITE = MiniWoBSuite()
TASK = "click-test"  # a button somewhere on the page
EPISODES = 8


def stage(folder: Path, name: str, start: Path, data: str, steps: int) -> Path:
    recipe = Recipe(
        name=name,
        stage=name,
        start=str(start),
        steps=steps,
        data=(Source(str(folder / data)),),
        dtype="float32",
        workers=0,
        log_every=50,
        keep_every=10**6,
        spread=12.0,
        batch=BatchBudget(tokens=1024, patches=2240, learned=320, sequences=16, images=16),
        optimizer=OptimizerConfig(kind="muon", rate=3e-3, warmup=10, average=0.9, decay=0.4),
    )
    return Trainer(recipe, folder / name, "cpu").run()


def taught(folder: Path, episodes: int) -> Path:
    """Episodes of the teacher, and the samples that they are to the trainer."""
    budget = StepBudget(steps=SUITE.max_steps)
    play = Play(SUITE, folder / "episodes", PolicyInfo(model="teacher"), NANO_WIDGETS, budget, SUITE.rule, taught=True)
    asyncio.run(play_tasks(play, SUITE.training_tasks([TASK], 0, episodes), None, sessions=3))
    store = EpisodeStore(play.store)
    with ShardWriter(folder / "oracle" / "part") as shards:
        for info in store.list_episodes(success=True):
            turns = [
                Turn(said(info.task.text, step.index), step.action.text, store.image(step.observation.image))
                for step in store.steps(info.id)
                if step.action is not None and step.observation.image is not None
            ]
            shards.add(Sample(f"miniwob/{TASK}", tuple(turns)))
    return folder / "oracle"


def solved(model: Path, out: Path) -> int:
    """How many held-out episodes it solves with its first action."""
    protocol = replace(SUITE.find_protocol("browsergym-125", [TASK]), episodes_per_task=EPISODES, max_steps=1)
    run = Evaluation(SUITE, (protocol,), out, "tiny", NANO_WIDGETS, sessions=2)
    with loaded(model, "cpu", style=ChatOptions(max_tokens=24)) as policy:
        return int(asyncio.run(evaluate(run, policy))["successes"])


def test_a_policy_gets_better_from_data_to_browser(tmp_path: Path) -> None:
    save_checkpoint(random_model(CONFIG), tmp_path / "start")
    save_policy_texts(CONFIG, tmp_path / "start")
    generate(GroundSettings(out=tmp_path / "ground", samples=16, mix={"widgets": 1}))
    taught(tmp_path, episodes=72)
    localized = stage(tmp_path, "localization", tmp_path / "start", "ground", 6)
    trained = stage(tmp_path, "navigation", localized, "oracle", 80)
    before, after = solved(tmp_path / "start", tmp_path / "before"), solved(trained, tmp_path / "after")
    assert after >= EPISODES // 2
    assert after > before + 2
