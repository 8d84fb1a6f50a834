"""A policy so small that a bandit is learned in seconds, and the recipe that does it."""

from __future__ import annotations

from pathlib import Path

from holotron.agent.policy_format import NANO, save_format
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import AttentionConfig, MambaConfig, MlpConfig, ModelConfig, VisionConfig
from holotron.model.initialize import random_model
from holotron.model.text.policy_tokenizer import save_policy_texts

TINY = ModelConfig(
    name="tiny-policy",
    pattern="M*-",
    hidden_size=64,
    vocab_size=2368,
    tied_embeddings=True,
    mamba=MambaConfig(heads=4, head_dim=16, state_size=16, groups=1, chunk_size=16),
    attention=AttentionConfig(heads=4, kv_heads=2, head_dim=16),
    mlp=MlpConfig(128),
    vision=VisionConfig(
        width=16,
        depth=1,
        heads=2,
        mlp_size=32,
        max_image_size=64,
        prefix_tokens=1,
        projector_size=32,
        mode="dynamic",
        min_patches=4,
        max_patches=16,
        image_token_id=5,
        image_start_token_id=6,
        image_end_token_id=7,
    ),
)
RECIPE = """
name = "bandit"
start = "start"
steps = {steps}
dtype = "float32"
workers = 0
[rollout]
suite = "bandit"
tasks = ["left"]
sessions = 8
staleness = {staleness}
max_tokens = 32
memory_gib = 0.1
tokens_per_session = 256
{rollout}
[groups]
size = {size}
count = {count}
refill = 1.0
[objective]
tokens = 8.0
[batch]
tokens = 768
patches = 576
learned = 640
sequences = 32
images = 32
longest = 128
[optimizer]
rate = 0.03
warmup = 1
decay = 0.0
average = 0.0
weight_decay = 0.0
"""


def write_tiny(folder: Path) -> None:
    """A checkpoint with random weights that says how it wants to be asked."""
    save_checkpoint(random_model(TINY, seed=1), folder)
    save_policy_texts(TINY, folder)
    save_format(NANO, folder)


def write_run(
    folder: Path, steps: int, *, staleness: int = 0, size: int = 4, count: int = 2, rollout: str = ""
) -> Path:
    """A recipe beside the checkpoint that it starts from."""
    write_tiny(folder / "start")
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(steps=steps, staleness=staleness, size=size, count=count, rollout=rollout))
    return path
