"""config.json of Qwen3-VL, dense or with experts, and of Qwen2.5-VL, to and from ModelConfig."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from holotron.model.checkpoint.json_fields import (
    ATTENTION,
    Keys,
    Raw,
    attention_sizes,
    common,
    given,
    integer,
    refuse,
    render_common,
    written,
)
from holotron.model.config import (
    CLIP_MEAN,
    CLIP_STD,
    AttentionConfig,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    QwenVisionConfig,
)
from holotron.model.errors import ConfigError

QWEN_VL_TYPES = ("qwen3_vl", "qwen3_vl_moe", "qwen2_5_vl")

_TOWER: Keys = {
    "width": ("hidden_size",),
    "depth": ("depth",),
    "heads": ("num_heads",),
    "mlp_size": ("intermediate_size",),
    "patch_size": ("patch_size",),
}
# What the keys above are where a config leaves them out.
_TOWER_25 = {"width": 3584, "depth": 32, "mlp_size": 3420, "patch_size": 14}
_MOE: Keys = {
    "experts": ("num_experts", "num_local_experts"),
    "experts_per_token": ("num_experts_per_tok",),
    "expert_size": ("moe_intermediate_size",),
}


# ---- reading --------------------------------------------------------------------------------------------------------


def parse_qwen_vl(raw: Raw, name: str) -> ModelConfig:
    """The model that a config.json describes; that of Qwen2.5 may have the keys of the text at its top."""
    is_25 = raw["model_type"] == "qwen2_5_vl"
    text, tower = raw.get("text_config") or raw, raw.get("vision_config")
    if not isinstance(text, dict) or not isinstance(tower, dict) or (text is raw and not is_25):
        raise ConfigError(f"{name}: a config of {raw['model_type']} needs text_config and vision_config")
    refuse(text, name, "hidden_act", allowed=("silu",))
    refuse(text, name, "attention_bias", allowed=(False,))
    if text.get("use_sliding_window") and text.get("sliding_window") is not None:
        raise ConfigError(f"{name}: use_sliding_window is true; windowed attention is not supported")
    heads, kv_heads, _ = attention_sizes(text, name)
    inferred = integer(text, name, "hidden_size") // heads
    pattern, moe = _layers(text, name, raw["model_type"] == "qwen3_vl_moe")
    config = ModelConfig(
        pattern=pattern,
        attention=AttentionConfig(
            heads,
            kv_heads,
            inferred if is_25 else integer(text, name, "head_dim", 128 if moe is None else inferred),
            qk_norm=not is_25,
            bias=is_25,
            **_rope(text, name, is_25),
        ),
        mlp=MlpConfig(integer(text, name, "intermediate_size"), gated=True) if "-" in pattern else None,
        moe=moe,
        vision=_vision(raw, tower, name, "2.5" if is_25 else "3"),
        norm_eps=float(text.get("rms_norm_eps", 1e-5 if is_25 else 1e-6)),
        max_positions=integer(text, name, "max_position_embeddings", 32768 if is_25 else 128000),
        **common(text, name, bos=raw.get("bos_token_id"), eos=raw.get("eos_token_id"), pad=raw.get("pad_token_id")),
    )
    return replace(config, tied_embeddings=bool(raw.get("tie_word_embeddings", False)))


def _rope(text: Raw, name: str, is_25: bool) -> dict[str, Any]:
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    if (kind := rope.get("rope_type", rope.get("type", "default"))) not in ("default", "mrope"):
        raise ConfigError(f"{name}: rope_type is {kind!r}; only the default rotary embedding is supported")
    refuse(rope, name, "mrope_interleaved", allowed=(not is_25,))
    refuse(rope, name, "partial_rotary_factor", allowed=(1.0, None))
    section = tuple(rope.get("mrope_section") or ((16, 24, 24) if is_25 else (24, 20, 20)))
    return {
        "rope_theta": float(rope.get("rope_theta") or text.get("rope_theta") or (1e6 if is_25 else 5e5)),
        "mrope_section": section,
        "mrope_interleaved": not is_25,
    }


def _layers(text: Raw, name: str, has_experts: bool) -> tuple[str, MoeConfig | None]:
    """The pattern, and the experts where there are some: in every so manieth layer, but not in those that are named."""
    layers = integer(text, name, "num_hidden_layers")
    if not has_experts:
        return "*-" * layers, None
    refuse(text, name, "norm_topk_prob", allowed=(True,))
    step, dense = integer(text, name, "decoder_sparse_step", 1), text.get("mlp_only_layers") or []
    pattern = "".join("*-" if n in dense or (n + 1) % step else "*E" for n in range(layers))
    moe = MoeConfig(**given(MoeConfig, _MOE, text, name), shared_size=0, router="softmax", gated=True)
    return pattern, moe if "E" in pattern else None


def _vision(raw: Raw, tower: Raw, name: str, version: Literal["2.5", "3"]) -> QwenVisionConfig:
    part = f"{name}: vision_config"
    refuse(tower, part, "hidden_act", allowed=("silu" if version == "2.5" else "gelu_pytorch_tanh",))
    for key, value in (("in_channels", 3), ("in_chans", 3), ("spatial_merge_size", 2), ("temporal_patch_size", 2)):
        refuse(tower, part, key, allowed=(value,))
    refuse(tower.get("rope_parameters") or {}, part, "rope_theta", allowed=(10000.0,))
    hidden_size = integer(raw.get("text_config") or raw, name, "hidden_size")
    refuse(tower, part, "out_hidden_size", allowed=(hidden_size,))
    shape = (_TOWER_25 if version == "2.5" else {}) | given(QwenVisionConfig, _TOWER, tower, name)
    patch = shape.get("patch_size", QwenVisionConfig.patch_size)
    entries = integer(tower, name, "num_position_embeddings", 2304)
    if (side := round(entries**0.5)) ** 2 != entries:
        raise ConfigError(f"{part}: num_position_embeddings is {entries}; the table must be square")
    if version == "2.5":
        full = tower.get("fullatt_block_indexes", (7, 15, 23, 31))
        # Those of the usual processor of these models, which a file beside this one may change.
        extra: dict[str, Any] = {"min_pixels": 3136, "max_pixels": 12845056, "mean": CLIP_MEAN, "std": CLIP_STD}
        extra |= {"full_attention": tuple(full), "window_size": integer(tower, name, "window_size", 112)}
    else:
        extra = {"deepstack": tuple(tower.get("deepstack_visual_indexes", (8, 16, 24)))}
    return QwenVisionConfig(
        version=version,
        **shape,
        **extra,
        max_image_size=side * patch,
        image_token_id=integer(raw, name, "image_token_id", 151655),
    )


def processor_fields(raw: Raw, name: str) -> dict[str, Any]:
    """The fields of QwenVisionConfig that an image processor's config says: sizes in pixels, mean and deviation."""
    found: dict[str, Any] = {}
    size = raw.get("size") or {}
    for ours, edge in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
        value = raw.get(ours) or size.get(ours) or size.get(edge)
        if value is not None:
            found[ours] = int(value)
    for ours, theirs in (("mean", "image_mean"), ("std", "image_std")):
        if raw.get(theirs) is not None:
            found[ours] = tuple(raw[theirs])
    refuse(raw, name, "resample", allowed=(3,))
    return found


# ---- writing --------------------------------------------------------------------------------------------------------


def render_qwen_vl(config: ModelConfig) -> dict[str, Any]:
    """A config.json for a model that was made here; `parse_qwen_vl` and transformers read it back."""
    a, v = config.attention, config.vision
    if a is None or not isinstance(v, QwenVisionConfig):
        raise ConfigError(f"{config.name}: positions with three axes are only written with Qwen's vision tower")
    is_25 = v.version == "2.5"
    kind = "qwen2_5_vl" if is_25 else "qwen3_vl_moe" if config.moe else "qwen3_vl"
    shared = render_common(config)
    text = {
        "model_type": f"{kind}_text",
        "num_hidden_layers": config.layers // 2,
        **written(a, ATTENTION),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": a.rope_theta,
            "mrope_section": list(a.mrope_section or ()),
            **({} if is_25 else {"mrope_interleaved": True}),
        },
        "intermediate_size": config.mlp.size if config.mlp else 4 * config.hidden_size,
        "rms_norm_eps": config.norm_eps,
        **shared,
    }
    if e := config.moe:
        dense = [n for n, symbol in enumerate(config.pattern[1::2]) if symbol == "-"]
        text |= written(e, _MOE) | {"decoder_sparse_step": 1, "mlp_only_layers": dense}
    tower = {"model_type": f"{kind}_vision", **written(v, _TOWER), "out_hidden_size": config.hidden_size}
    if is_25:
        tower |= {"window_size": v.window_size, "fullatt_block_indexes": list(v.full_attention)}
    else:
        tower |= {"num_position_embeddings": v.table_side**2, "deepstack_visual_indexes": list(v.deepstack)}
    names = {"qwen3_vl": "Qwen3VL", "qwen3_vl_moe": "Qwen3VLMoe", "qwen2_5_vl": "Qwen2_5_VL"}
    return {
        "architectures": [f"{names[kind]}ForConditionalGeneration"],
        "model_type": kind,
        "text_config": text,
        "vision_config": tower,
        "image_token_id": v.image_token_id,
        "tie_word_embeddings": config.tied_embeddings,
    }


def render_qwen_processor(vision: QwenVisionConfig) -> dict[str, Any]:
    """A preprocessor_config.json for a model that was made here."""
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "size": {"shortest_edge": vision.min_pixels, "longest_edge": vision.max_pixels},
        "image_mean": list(vision.mean),
        "image_std": list(vision.std),
        "patch_size": vision.patch_size,
        "temporal_patch_size": 2,
        "merge_size": 2,
    }
