"""Tiny random models of every kind, in float64 so that equalities are exact to rounding."""

import random

import torch

from holotron.model.config import (
    AttentionConfig,
    MambaConfig,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    QwenVisionConfig,
    VisionConfig,
)
from holotron.model.initialize import random_model
from holotron.model.model import Model

VOCAB = 64
IMAGE_TOKEN = 60


def tiny_config(pattern: str = "M-M*-", seed: int = 0, **changes) -> ModelConfig:
    draw = random.Random(seed)
    groups = draw.choice([1, 2])
    kv_heads = draw.choice([1, 2])
    values = {
        "name": "tiny",
        "pattern": pattern,
        "hidden_size": 24,
        "vocab_size": VOCAB,
        "mamba": MambaConfig(
            heads=groups * draw.choice([1, 2]),
            head_dim=draw.choice([4, 20]),
            state_size=8,
            groups=groups,
            conv_kernel=draw.choice([2, 4]),
            chunk_size=draw.choice([2, 4, 8]),
        ),
        "attention": AttentionConfig(heads=kv_heads * 2, kv_heads=kv_heads, head_dim=8),
        "mlp": MlpConfig(32),
        "moe": MoeConfig(experts=4, experts_per_token=2, expert_size=16, shared_size=16),
    }
    values |= changes
    for symbol, part in (("M", "mamba"), ("*", "attention"), ("-", "mlp"), ("E", "moe")):
        if symbol not in values["pattern"]:
            values[part] = None
    return ModelConfig(**values)


def tiny_vision(**changes) -> VisionConfig:
    values = {
        "width": 16,
        "depth": 2,
        "heads": 2,
        "mlp_size": 32,
        "patch_size": 4,
        "max_image_size": 32,
        "prefix_tokens": 3,
        "projector_size": 24,
        "tile_size": 16,
        "max_tiles": 4,
        "mode": "dynamic",
        "min_patches": 4,
        "max_patches": 64,
        "image_token_id": IMAGE_TOKEN,
        "image_start_token_id": 61,
        "image_end_token_id": 62,
    }
    return VisionConfig(**(values | changes))


DENSE_TRANSFORMER = {
    "pattern": "*-*-",
    "attention": AttentionConfig(heads=4, kv_heads=2, head_dim=8, rope_theta=10_000.0, qk_norm=True),
    "mlp": MlpConfig(32, gated=True),
}


def tiny_qwen(kind: str) -> dict:
    """A tiny Qwen3-VL ("qwen3"), one with experts ("experts"), or Qwen2.5-VL ("qwen2.5")."""
    is_25 = kind == "qwen2.5"
    vision = QwenVisionConfig(
        version="2.5" if is_25 else "3",
        width=16,
        depth=3,
        heads=2,
        mlp_size=24,
        patch_size=4,
        max_image_size=192 if is_25 else 24,
        deepstack=() if is_25 else (0, 2),
        window_size=16 if is_25 else None,
        full_attention=(1,) if is_25 else (),
        min_pixels=64,
        max_pixels=24 * 32,
        image_token_id=IMAGE_TOKEN,
    )
    return {
        "pattern": "*E*-*E" if kind == "experts" else "*-*-",
        "hidden_size": 64 if is_25 else 24,
        "attention": AttentionConfig(
            heads=4,
            kv_heads=2,
            head_dim=16,
            rope_theta=10_000.0,
            qk_norm=not is_25,
            bias=is_25,
            mrope_section=(2, 3, 3) if is_25 else (4, 2, 2),
            mrope_interleaved=not is_25,
        ),
        "mlp": MlpConfig(32, gated=True),
        "moe": MoeConfig(4, 2, expert_size=12, shared_size=0, router="softmax", gated=True),
        "vision": vision,
    }


def tiny_model(pattern: str = "M-M*-", seed: int = 0, dtype: torch.dtype = torch.float64, **changes) -> Model:
    model = random_model(tiny_config(pattern, seed, **changes), dtype=dtype, seed=seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)  # the usual small weights would hide a mistake in rounding
            elif name.endswith(("conv1d.bias", "e_score_correction_bias")):
                parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(seed))
    return model


def draw_tokens(count: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 50, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
