"""Tiny random models of transformers, drawn by seed, to compare ours with."""

from __future__ import annotations

import importlib
import random
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch

# Its models are named in full: they are imported when they are first used, which takes seconds.
transformers = pytest.importorskip("transformers")

IMAGE_TOKEN = 90


def draw_nemotron(seed: int, kind: str) -> dict:
    """A configuration of the kind asked for: dense, moe or latent."""
    draw = random.Random(f"{kind}{seed}")
    groups = draw.choice([1, 2, 4])
    feed_forward = "-" if kind == "dense" else "E"
    pattern = draw.choice(["M{f}M{f}*{f}M{f}", "MM*{f}M{f}*", "*{f}M{f}", "M*{f}M-{f}"]).format(f=feed_forward)
    kv_heads = draw.choice([1, 2, 4])
    expert_groups = draw.choice([1, 2])
    return {
        "vocab_size": draw.choice([97, 128]),
        "hidden_size": draw.choice([32, 40, 64]),
        "hybrid_override_pattern": pattern,
        "num_attention_heads": kv_heads * draw.choice([1, 2, 5]),
        "num_key_value_heads": kv_heads,
        "head_dim": draw.choice([8, 16, 20]),
        "intermediate_size": draw.choice([48, 80]),
        "mamba_num_heads": groups * draw.choice([1, 2, 3]),
        "mamba_head_dim": draw.choice([16, 20, 80]),
        "n_groups": groups,
        "ssm_state_size": draw.choice([8, 16, 32]),
        "conv_kernel": draw.choice([2, 4]),
        "use_conv_bias": draw.choice([True, True, False]),
        "chunk_size": draw.choice([1, 4, 8, 32]),
        "layer_norm_epsilon": 1e-5,
        "n_routed_experts": 4 * expert_groups,
        "num_experts_per_tok": draw.choice([1, 2, 3]),
        "n_group": expert_groups,
        "topk_group": 1,
        "norm_topk_prob": draw.choice([True, False]),
        "routed_scaling_factor": draw.choice([1.0, 2.5]),
        "moe_intermediate_size": draw.choice([16, 24]),
        "moe_shared_expert_intermediate_size": draw.choice([16, 40]),
        "moe_latent_size": draw.choice([12, 16]) if kind == "latent" else None,
    }


def draw_radio(seed: int) -> dict:
    draw = random.Random(f"radio{seed}")
    heads = draw.choice([1, 2, 4])
    return {
        "hidden_size": heads * draw.choice([8, 20]),
        "num_hidden_layers": draw.choice([1, 2, 3]),
        "num_attention_heads": heads,
        "mlp_ratio": draw.choice([2.0, 4.0]),
        "max_img_size": draw.choice([64, 128]),
        "num_cls_tokens": draw.choice([1, 3]),
        "num_registers": draw.choice([0, 5, 7]),
    }


def scatter_weights(model: torch.nn.Module, seed: int) -> None:
    """Weights large enough that every part of the model shows in the output; as published, dt is not clamped below.

    Not larger: with half as much again, or with Mamba heads of 4 channels, some models lose so much in float32 that
    the two sides drift more than 1e-4 apart (3 of 72 draws). In float64 those agree to 2e-12 all the same.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            leaf = name.rpartition(".")[2]
            if leaf in ("summary_idxs", "norm_mean", "norm_std", "lambda1", "inv_freq") or "inv_freq" in leaf:
                continue
            if leaf == "A_log":
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 3)
            elif leaf == "D" or "norm" in name:
                tensor.copy_(1 + 0.3 * torch.randn(tensor.shape, generator=generator))
            elif leaf == "e_score_correction_bias":
                tensor.copy_(0.5 * torch.randn(tensor.shape, generator=generator))
            else:
                spread = 0.5 if tensor.dim() < 2 else min(0.5, tensor.shape[-1] ** -0.5)
                tensor.copy_(spread * torch.randn(tensor.shape, generator=generator))
    for module in model.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, float("inf"))


def make_nemotron(seed: int, kind: str) -> torch.nn.Module:
    model = transformers.NemotronHForCausalLM(transformers.NemotronHConfig(**draw_nemotron(seed, kind))).eval()
    scatter_weights(model, seed)
    return model


def make_qwen3(seed: int) -> torch.nn.Module:
    draw = random.Random(f"qwen{seed}")
    kv_heads = draw.choice([1, 2])
    config = transformers.Qwen3Config(
        vocab_size=101,
        hidden_size=draw.choice([32, 48]),
        num_hidden_layers=draw.choice([1, 3]),
        num_key_value_heads=kv_heads,
        num_attention_heads=kv_heads * draw.choice([1, 4]),
        head_dim=draw.choice([8, 20, 80]),
        intermediate_size=draw.choice([40, 64]),
        rope_parameters={"rope_type": "default", "rope_theta": draw.choice([10_000.0, 1_000_000.0])},
        tie_word_embeddings=draw.choice([True, False]),
    )
    model = transformers.Qwen3ForCausalLM(config).eval()
    scatter_weights(model, seed)
    return model


def make_radio(seed: int) -> torch.nn.Module:
    model = transformers.RadioModel(transformers.RadioConfig(**draw_radio(seed))).eval()
    scatter_weights(model, seed)
    return model


def omni() -> ModuleType:
    """Where the vision-language model is, which transformers does not name at the top."""
    return importlib.import_module("transformers.models.nemotron_h_omni.modeling_nemotron_h_omni")


def make_omni(seed: int, kind: str = "dense", lookahead: int = 0) -> torch.nn.Module:
    draw = random.Random(f"omni{seed}")
    radio = draw_radio(seed) | {"video_temporal_patch_size": 2}
    text = transformers.NemotronHConfig(**draw_nemotron(seed, kind), num_nextn_predict_layers=lookahead)
    config = omni().NemotronH_Omni_Reasoning_V3_Config(
        vision_config=radio,
        text_config=text.to_dict(),
        vision_hidden_size=radio["hidden_size"],
        projector_hidden_size=draw.choice([24, 56]),
        image_token_id=IMAGE_TOKEN,
    )
    model = omni().NemotronH_Omni_Reasoning_V3(config).eval()
    scatter_weights(model, seed)
    return model


def save(model: torch.nn.Module, folder: Path, **options: object) -> Path:
    model.save_pretrained(folder, **options)
    return folder


@contextmanager
def in_float64():
    """Inside, transformers computes in float64 where it asks for float32, so that both sides round alike."""
    patch = pytest.MonkeyPatch()
    patch.setattr(torch, "float32", torch.float64)
    patch.setattr(torch, "float", torch.float64)
    patch.setattr(torch.Tensor, "float", torch.Tensor.double)
    try:
        yield
    finally:
        patch.undo()


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    assert ours.shape == theirs.shape
    assert torch.isfinite(ours).all()
    return (ours.double() - theirs.double()).abs().max().item()
