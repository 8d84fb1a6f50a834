"""The models Holotron knows by name. Sizes follow the published configurations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holotron.model.config import (
    CLIP_MEAN,
    CLIP_STD,
    AttentionConfig,
    MambaConfig,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    QwenVisionConfig,
    VisionConfig,
)
from holotron.model.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """A known model: its shape, where its weights live, and one line about it."""

    config: ModelConfig
    hub_id: str | None
    about: str


_NANO_12B = ModelConfig(
    name="nemotron-nano-12b-v2",
    pattern="M-M-M-M*-" * 6 + "M-M-M-M-",
    hidden_size=5120,
    vocab_size=131072,
    mamba=MambaConfig(heads=128, head_dim=80),
    attention=AttentionConfig(heads=40, kv_heads=8, head_dim=128),
    mlp=MlpConfig(20480),
    eos_token_ids=(2, 11, 12),
)
# The ids of images are the tokenizer's and are read with a checkpoint; these give random weights something to read.
_VISION_12B = VisionConfig(image_token_id=18, image_start_token_id=19, image_end_token_id=20)
_NANO_30B = ModelConfig(
    name="nemotron-3-nano-30b-a3b",
    pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    hidden_size=2688,
    vocab_size=131072,
    mamba=MambaConfig(heads=64, head_dim=64),
    attention=AttentionConfig(heads=32, kv_heads=2, head_dim=128),
    moe=MoeConfig(experts=128, experts_per_token=6, expert_size=1856, shared_size=3712, scaling=2.5),
    max_positions=262144,
    eos_token_ids=(2, 11),
)
_HOLO2_ATTENTION = AttentionConfig(
    heads=32, kv_heads=8, head_dim=128, rope_theta=5_000_000.0, qk_norm=True, mrope_section=(24, 20, 20)
)
_HOLO2_8B = ModelConfig(
    name="holo2-8b",
    pattern="*-" * 36,
    hidden_size=4096,
    vocab_size=151936,
    attention=_HOLO2_ATTENTION,
    mlp=MlpConfig(12288, gated=True),
    vision=QwenVisionConfig(deepstack=(8, 16, 24)),
    norm_eps=1e-6,
    max_positions=262144,
    bos_token_id=151643,
    eos_token_ids=(151645, 151643),
    pad_token_id=151643,
)

_PRESETS = (
    Preset(
        replace(_NANO_12B, name="holotron-12b", vision=_VISION_12B, eos_token_ids=(12,)),
        "Hcompany/Holotron-12B",
        "the computer-use policy this stack is built around",
    ),
    Preset(
        replace(
            _NANO_12B,
            name="nemotron-nano-9b-v2",
            pattern="M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
            hidden_size=4480,
            mlp=MlpConfig(15680),
        ),
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        "text only; pruned from the 12B",
    ),
    Preset(_NANO_12B, "nvidia/NVIDIA-Nemotron-Nano-12B-v2", "text only; the 12B's language model"),
    Preset(
        replace(_NANO_12B, name="nemotron-nano-12b-v2-vl", vision=_VISION_12B, eos_token_ids=(12,)),
        "nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16",
        "the vision-language base of holotron-12b",
    ),
    Preset(
        ModelConfig(
            name="nemotron-h-8b",
            pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
            hidden_size=4096,
            vocab_size=131072,
            mamba=MambaConfig(heads=128, head_dim=64),
            attention=AttentionConfig(heads=32, kv_heads=8, head_dim=128),
            mlp=MlpConfig(21504),
            max_positions=8192,
        ),
        "nvidia/Nemotron-H-8B-Base-8K",
        "text only; the first of the family",
    ),
    Preset(_NANO_30B, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "text only; mixture of experts, 3B active"),
    Preset(
        replace(
            _NANO_30B,
            name="nemotron-3-nano-omni-30b-a3b",
            vision=VisionConfig(mode="dynamic", image_token_id=18, image_start_token_id=19, image_end_token_id=20),
        ),
        "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16",
        "the same with a vision tower; images at their own aspect ratio",
    ),
    Preset(
        replace(
            _NANO_30B,
            name="nemotron-3-super-120b-a12b",
            pattern="MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
            hidden_size=4096,
            mamba=MambaConfig(heads=128, head_dim=64),
            moe=MoeConfig(
                experts=512, experts_per_token=22, expert_size=2688, shared_size=5376, latent_size=1024, scaling=5.0
            ),
        ),
        "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16",
        "text only; mixture of experts in a latent space, 12B active",
    ),
    Preset(
        ModelConfig(
            name="qwen3-8b",
            pattern="*-" * 36,
            hidden_size=4096,
            vocab_size=151936,
            attention=AttentionConfig(heads=32, kv_heads=8, head_dim=128, rope_theta=1_000_000.0, qk_norm=True),
            mlp=MlpConfig(12288, gated=True),
            norm_eps=1e-6,
            max_positions=40960,
            bos_token_id=151643,
            eos_token_ids=(151645, 151643),
            pad_token_id=151643,
        ),
        "Qwen/Qwen3-8B",
        "the dense transformer that the hybrid is compared with",
    ),
    Preset(
        replace(
            _HOLO2_8B,
            name="holo2-4b",
            hidden_size=2560,
            tied_embeddings=True,
            mlp=MlpConfig(9728, gated=True),
            vision=QwenVisionConfig(width=1024, depth=24, mlp_size=4096, deepstack=(5, 11, 17)),
        ),
        "Hcompany/Holo2-4B",
        "computer-use policy on Qwen3-VL",
    ),
    Preset(_HOLO2_8B, "Hcompany/Holo2-8B", "computer-use policy on Qwen3-VL"),
    Preset(
        replace(
            _HOLO2_8B,
            name="holo2-30b-a3b",
            pattern="*E" * 48,
            hidden_size=2048,
            attention=replace(_HOLO2_ATTENTION, kv_heads=4),
            mlp=None,
            moe=MoeConfig(128, 8, expert_size=768, shared_size=0, router="softmax", gated=True),
        ),
        "Hcompany/Holo2-30B-A3B",
        "computer-use policy on Qwen3-VL; mixture of experts, 3B active",
    ),
    Preset(
        replace(
            _HOLO2_8B,
            name="holo2-235b-a22b",
            pattern="*E" * 94,
            attention=replace(_HOLO2_ATTENTION, heads=64, kv_heads=4),
            mlp=None,
            moe=MoeConfig(128, 8, expert_size=1536, shared_size=0, router="softmax", gated=True),
        ),
        "Hcompany/Holo2-235B-A22B",
        "computer-use policy on Qwen3-VL; mixture of experts, 22B active",
    ),
    Preset(
        replace(
            _HOLO2_8B,
            name="holo1.5-7b",
            pattern="*-" * 28,
            hidden_size=3584,
            vocab_size=152064,
            attention=AttentionConfig(
                heads=28,
                kv_heads=4,
                head_dim=128,
                rope_theta=1_000_000.0,
                bias=True,
                mrope_section=(16, 24, 24),
                mrope_interleaved=False,
            ),
            mlp=MlpConfig(18944, gated=True),
            vision=QwenVisionConfig(
                version="2.5",
                width=1280,
                depth=32,
                mlp_size=3420,
                patch_size=14,
                max_image_size=672,
                window_size=112,
                full_attention=(7, 15, 23, 31),
                min_pixels=3136,
                max_pixels=12845056,
                mean=CLIP_MEAN,
                std=CLIP_STD,
            ),
            max_positions=128000,
        ),
        "Hcompany/Holo1.5-7B",
        "computer-use policy on Qwen2.5-VL",
    ),
    Preset(
        ModelConfig(
            name="holotron-nano",
            pattern="M-M-M*-M-M-M*-",
            hidden_size=384,
            vocab_size=2368,
            tied_embeddings=True,
            mamba=MambaConfig(heads=12, head_dim=64, state_size=64, groups=2, chunk_size=64),
            attention=AttentionConfig(heads=6, kv_heads=2, head_dim=64),
            mlp=MlpConfig(1536),
            vision=VisionConfig(
                width=384,
                depth=8,
                heads=6,
                mlp_size=1408,
                max_image_size=512,
                prefix_tokens=4,
                projector_size=1024,
                mode="dynamic",
                min_patches=560,
                max_patches=1536,
                image_token_id=5,
                image_start_token_id=6,
                image_end_token_id=7,
            ),
            max_positions=65536,
        ),
        None,
        "a laptop-sized policy of the same design, trained here; it comes with the package",
    ),
)
PRESETS: dict[str, Preset] = {preset.config.name: preset for preset in _PRESETS}


def preset(name: str) -> Preset:
    """The preset of that name, or an error that lists the known ones."""
    if name not in PRESETS:
        raise ConfigError(f"no model is called {name!r}; known are {', '.join(PRESETS)}")
    return PRESETS[name]
