"""A checkpoint so small that only what is around the model is measured: every kind of layer, a vision tower."""

from __future__ import annotations

from pathlib import Path

from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import AttentionConfig, MambaConfig, MlpConfig, ModelConfig, VisionConfig
from holotron.model.initialize import random_model
from holotron.model.text.byte_tokenizer import byte_library

TINY = ModelConfig(
    name="tiny",
    pattern="M-M*-",
    hidden_size=48,
    vocab_size=288,
    mamba=MambaConfig(heads=4, head_dim=16, state_size=16, groups=2, chunk_size=16),
    attention=AttentionConfig(heads=4, kv_heads=2, head_dim=16),
    mlp=MlpConfig(96),
    vision=VisionConfig(
        width=32,
        depth=2,
        heads=2,
        mlp_size=64,
        max_image_size=256,
        prefix_tokens=2,
        projector_size=48,
        mode="dynamic",
        min_patches=4,
        max_patches=256,
        image_token_id=5,
        image_start_token_id=6,
        image_end_token_id=7,
    ),
)


def write_checkpoint(folder: Path, seed: int = 0) -> Path:
    """A folder as it would be downloaded, with random weights."""
    save_checkpoint(random_model(TINY, seed=seed), folder)
    byte_library(TINY).save(str(folder / "tokenizer.json"))
    return folder
