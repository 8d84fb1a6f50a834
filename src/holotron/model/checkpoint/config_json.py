"""config.json as published checkpoints write it, to and from ModelConfig.

A key that changes the mathematics in a way this code does not follow is an error, never ignored.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from holotron.model.checkpoint.companions import IdOf, overlay_companions, read_json, token_ids
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
from holotron.model.checkpoint.qwen_config import QWEN_VL_TYPES, parse_qwen_vl, render_qwen_vl
from holotron.model.config import (
    AttentionConfig,
    MambaConfig,
    MlpConfig,
    ModelConfig,
    MoeConfig,
    VisionConfig,
)
from holotron.model.errors import ConfigError

# Our fields and the keys that hold them in a config.json.
_MAMBA: Keys = {
    "heads": ("mamba_num_heads",),
    "head_dim": ("mamba_head_dim",),
    "state_size": ("ssm_state_size",),
    "groups": ("n_groups", "mamba_n_groups"),
    "conv_kernel": ("conv_kernel", "mamba_d_conv"),
    "conv_bias": ("use_conv_bias", "mamba_conv_bias"),
    "chunk_size": ("chunk_size", "mamba_chunk_size"),
}
_MOE: Keys = {
    "experts": ("n_routed_experts",),
    "experts_per_token": ("num_experts_per_tok",),
    "expert_size": ("moe_intermediate_size",),
    "shared_size": ("moe_shared_expert_intermediate_size",),
    "latent_size": ("moe_latent_size",),
    "scaling": ("routed_scaling_factor",),
    "normalize": ("norm_topk_prob",),
    "groups": ("n_group",),
    "groups_per_token": ("topk_group",),
}
_TOWER: Keys = {
    "width": ("hidden_size",),
    "depth": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "max_image_size": ("max_img_size",),
}
_IMAGE_TOKENS: Keys = {
    "image_token_id": ("image_token_id", "img_context_token_id"),
    "image_start_token_id": ("image_start_token_id", "img_start_token_id"),
    "image_end_token_id": ("image_end_token_id", "img_end_token_id"),
}

_SYMBOLS = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-", "moe": "E"}
_LAYER_NAMES = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}

TILED_TYPES = ("NemotronH_Nano_VL_V2",)
DYNAMIC_TYPES = ("nemotron_h_omni", "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Omni_Reasoning_V3")
SUPPORTED_TYPES = ("nemotron_h", "qwen3", *QWEN_VL_TYPES, *TILED_TYPES, *DYNAMIC_TYPES)

# Heads of the named transformers that RADIO releases are built on; the rest of their shape is in the checkpoint.
_TOWERS = {
    "vit_base_patch16_224": (768, 12, 12, 3072),
    "vit_large_patch16_224": (1024, 24, 16, 4096),
    "vit_huge_patch16_224": (1280, 32, 16, 5120),
}

# transformers clamps step sizes below at time_step_min while it reads a prompt, and not while it generates. Nothing is
# clamped here unless time_step_limit says so, and what is written here says so to transformers, too.
NO_CLAMP = 1e-30

# The text of the tokens that stand for, start and end an image, where a config does not say another.
_IMAGE_TEXTS = {
    "image_token_id": ("img_context_token", "<image>"),
    "image_start_token_id": ("img_start_token", "<img>"),
    "image_end_token_id": ("img_end_token", "</img>"),
}


def read_raw_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder as it stands."""
    raw = read_json(folder / "config.json")
    if raw is None:
        raise ConfigError(
            f"{folder / 'config.json'} does not exist; a checkpoint folder holds config.json and *.safetensors"
        )
    return raw


def parse_config(raw: Raw, name: str, id_of: IdOf | None = None) -> ModelConfig:
    """The model that a config.json describes. id_of: the tokenizer's ids, for tokens that it gives by their text."""
    _refuse_quantised(raw, name)
    kind = raw.get("model_type") or next(iter(raw.get("architectures") or ()), None)
    if kind in ("nemotron_h", "NemotronHForCausalLM"):
        return _nemotron(raw, name)
    if kind in ("qwen3", "Qwen3ForCausalLM"):
        return _qwen3(raw, name)
    if kind in QWEN_VL_TYPES:
        return parse_qwen_vl(raw, name)
    if kind in TILED_TYPES or kind in DYNAMIC_TYPES:
        return _vision_language(raw, name, id_of)
    raise ConfigError(
        f"{name}: model_type {kind!r} is not supported; supported are {', '.join(SUPPORTED_TYPES)}. "
        "Other architectures can be used through --endpoint with a server that runs them"
    )


def read_config(folder: str | Path) -> ModelConfig:
    """The model that a checkpoint folder holds, from its JSON files alone."""
    folder = Path(folder)
    if quantised := read_json(folder / "hf_quant_config.json"):
        _refuse_quantised({"quantization_config": quantised}, folder.name)
    return overlay_companions(parse_config(read_raw_config(folder), folder.name, token_ids(folder)), folder)


# ---- reading --------------------------------------------------------------------------------------------------------


def _refuse_quantised(raw: Raw, name: str) -> None:
    for part in (raw, raw.get("llm_config"), raw.get("text_config")):
        stated = (part.get("quantization_config") or part.get("compression_config")) if isinstance(part, dict) else None
        if stated and not (isinstance(stated, dict) and _is_fp8(stated)):
            within = stated.get("quantization", stated) if isinstance(stated, dict) else {}
            said = [within.get(key) for key in ("quant_method", "quant_algo", "format", "bits")]
            how = ", ".join(str(value) for value in said if value) or "see its quantization_config"
            raise ConfigError(
                f"{name}: the checkpoint is quantised ({how}), which is not supported; use its release in FP8 or BF16"
            )


def _is_fp8(stated: Raw) -> bool:
    """Whether it is in 8 bits by one of the layouts that are read (fp8_scales.py)."""
    within = stated.get("quantization", stated)
    method, algorithm = within.get("quant_method"), within.get("quant_algo")
    if method == "fp8":
        return within.get("fmt", "e4m3") == "e4m3" and within.get("weight_block_size") in (None, [128, 128])
    if method == "compressed-tensors":
        return within.get("format") == "float-quantized"
    return method in (None, "modelopt") and str(algorithm).startswith("FP8")


def _nemotron(raw: Raw, name: str, vision: VisionConfig | None = None) -> ModelConfig:
    pattern = _pattern(raw, name)
    refuse(raw, name, "mlp_hidden_act", allowed=("relu2",))
    refuse(raw, name, "mamba_hidden_act", allowed=("silu",))
    for key in ("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias", "residual_in_fp32"):
        refuse(raw, name, key, allowed=(False,))
    refuse(raw, name, "sliding_window", allowed=(None,))
    mamba = attention = mlp = moe = None
    if "M" in pattern:
        mamba = MambaConfig(**given(MambaConfig, _MAMBA, raw, name), dt_limit=_limits(raw, name))
    if "*" in pattern:
        attention = AttentionConfig(*attention_sizes(raw, name))
    if "-" in pattern:
        mlp = MlpConfig(integer(raw, name, "intermediate_size"))
    if "E" in pattern:
        refuse(raw, name, "n_shared_experts", allowed=(1,))
        moe = MoeConfig(**given(MoeConfig, _MOE, raw, name))
    return ModelConfig(
        pattern=pattern,
        mamba=mamba,
        attention=attention,
        mlp=mlp,
        moe=moe,
        vision=vision,
        norm_eps=float(raw.get("layer_norm_epsilon", raw.get("rms_norm_eps", 1e-5))),
        max_positions=integer(raw, name, "max_position_embeddings", 4096),
        **common(raw, name, bos=1, eos=2, pad=0),
    )


def _pattern(raw: Raw, name: str) -> str:
    if (pattern := raw.get("hybrid_override_pattern")) is not None:
        if not isinstance(pattern, str):
            raise ConfigError(f"{name}: hybrid_override_pattern is {pattern!r}; it must be a string of M * - E")
    else:
        types = raw.get("layers_block_type", raw.get("layer_types"))
        if not isinstance(types, list):
            raise ConfigError(f"{name}: neither hybrid_override_pattern nor layers_block_type says what the layers are")
        for position, kind in enumerate(types):
            if kind not in _SYMBOLS:
                known = ", ".join(_SYMBOLS)
                raise ConfigError(f"{name}: layers_block_type[{position}] is {kind!r}; known are {known}")
        pattern = "".join(_SYMBOLS[kind] for kind in types)
    layers = raw.get("num_hidden_layers")
    if layers is not None and layers != len(pattern):
        raise ConfigError(f"{name}: the pattern {pattern!r} has {len(pattern)} layers, num_hidden_layers says {layers}")
    return pattern


def _limits(raw: Raw, name: str) -> tuple[float, float]:
    limits = raw.get("time_step_limit", raw.get("mamba_dt_limit", (0.0, math.inf)))
    try:
        low, high = (_float(value) for value in limits)
    except (TypeError, ValueError, KeyError):
        raise ConfigError(f"{name}: time_step_limit is {limits!r}; it must be two numbers") from None
    return low, high


def _float(value: Any) -> float:
    # transformers writes infinity as {"__float__": "Infinity"} because JSON has none
    return float(value["__float__"]) if isinstance(value, dict) else float(value)


def _qwen3(raw: Raw, name: str) -> ModelConfig:
    refuse(raw, name, "hidden_act", allowed=("silu",))
    refuse(raw, name, "attention_bias", allowed=(False,))
    if raw.get("use_sliding_window") and raw.get("sliding_window") is not None:
        raise ConfigError(f"{name}: use_sliding_window is true; windowed attention is not supported")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if (kind := rope.get("rope_type", rope.get("type", "default"))) != "default":
        raise ConfigError(f"{name}: rope_type is {kind!r}; only the default rotary embedding is supported")
    theta = float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0)
    return ModelConfig(
        pattern="*-" * integer(raw, name, "num_hidden_layers"),
        attention=AttentionConfig(*attention_sizes(raw, name), rope_theta=theta, qk_norm=True),
        mlp=MlpConfig(integer(raw, name, "intermediate_size"), gated=True),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        max_positions=integer(raw, name, "max_position_embeddings", 32768),
        **common(raw, name, bos=None, eos=None, pad=None),
    )


def _vision_language(raw: Raw, name: str, id_of: IdOf | None) -> ModelConfig:
    text = raw.get("llm_config") or raw.get("text_config")
    tower = raw.get("vision_config")
    if not isinstance(text, dict) or not isinstance(tower, dict):
        raise ConfigError(f"{name}: a vision-language config needs llm_config (or text_config) and vision_config")
    refuse(raw, name, "downsample_ratio", allowed=(0.5,))
    args = tower.get("args") or {}
    if not isinstance(args, dict):
        raise ConfigError(f"{name}: vision_config.args is {args!r}; it must be an object")
    if args:
        model = args.get("model", "vit_huge_patch16_224")
        if model not in _TOWERS:
            raise ConfigError(f"{name}: vision_config.args.model is {model!r}; known are {', '.join(_TOWERS)}")
        shape: dict[str, Any] = dict(zip(("width", "depth", "heads", "mlp_size"), _TOWERS[model], strict=True))
        shape["max_image_size"] = int(args.get("cpe_max_size") or tower.get("max_resolution") or 2048)
    else:
        refuse(tower, f"{name}: vision_config", "hidden_act", allowed=("gelu",))
        refuse(tower, f"{name}: vision_config", "use_swiglu_ffn", allowed=(False,))
        refuse(tower, f"{name}: vision_config", "qkv_bias", allowed=(True,))
        shape = given(VisionConfig, _TOWER, tower, name)
        shape["mlp_size"] = int(shape.get("width", VisionConfig.width) * float(tower.get("mlp_ratio", 4.0)))
        shape["prefix_tokens"] = int(tower.get("num_cls_tokens", 3)) + int(tower.get("num_registers", 7))
    kind = raw.get("model_type") or raw["architectures"][0]
    patches = tower | args
    dynamic = kind in DYNAMIC_TYPES or "min_num_patches" in patches
    frames = tower.get("video_temporal_patch_size", raw.get("video_temporal_patch_size"))
    vision = VisionConfig(
        **shape,
        **_image_tokens(raw, name, id_of),
        patch_size=integer(tower, name, "patch_size", integer(raw, name, "patch_size", 16)),
        norm_eps=float(tower.get("layer_norm_eps", 1e-6)),
        projector_size=integer(raw, name, "projector_hidden_size", 20480 if args else 4096),
        # Checkpoints whose language model predicts several tokens ahead also normalise the tower's output.
        final_norm=int(text.get("num_nextn_predict_layers") or 0) > 0 and kind in DYNAMIC_TYPES,
        video_frames=frames if frames and frames > 1 and tower.get("separate_video_embedder", True) else None,
        mode="dynamic" if dynamic else "tiles",
        tile_size=int(raw.get("force_image_size") or 512),
        max_tiles=int(raw.get("max_num_tiles") or 12),
        thumbnail=bool(raw.get("use_thumbnail", True)),
        min_patches=int(patches.get("min_num_patches", 1024)),
        max_patches=int(patches.get("max_num_patches", 13312)),
        mean=_triple(raw, tower, name, "norm_mean", VisionConfig.mean),
        std=_triple(raw, tower, name, "norm_std", VisionConfig.std),
    )
    return _nemotron(text, name, vision)


def _image_tokens(raw: Raw, name: str, id_of: IdOf | None) -> dict[str, Any]:
    """The ids around an image: those of the config, else the tokenizer's for the texts that the config gives."""
    found: dict[str, Any] = {}
    for field, keys in _IMAGE_TOKENS.items():
        if (key := next((key for key in keys if key in raw), None)) is not None:
            found[field] = None if raw[key] is None else integer(raw, name, key)
            continue
        where, usual = _IMAGE_TEXTS[field]
        found[field] = id_of(raw.get(where) or usual) if id_of else None
        if id_of and found[field] is None and where in raw:
            raise ConfigError(f"{name}: {where} is {raw[where]!r}, which the tokenizer does not have as one token")
    if found["image_token_id"] is None:
        raise ConfigError(f"{name}: neither image_token_id nor a token <image> of the tokenizer says where images go")
    return found


def _triple(raw: Raw, tower: Raw, name: str, key: str, default: tuple[float, ...]) -> tuple[float, float, float]:
    values = raw.get(key) or tower.get(key) or default
    if len(values) != 3:
        raise ConfigError(f"{name}: {key} is {values!r}; it must be three numbers")
    return float(values[0]), float(values[1]), float(values[2])


# ---- writing --------------------------------------------------------------------------------------------------------


def render_config(config: ModelConfig) -> dict[str, Any]:
    """A config.json for a model that was made here; `parse_config` and transformers read it back."""
    if config.uses_mrope:
        return render_qwen_vl(config)
    if config.uses_rope:
        return _render_qwen3(config)
    text = _render_nemotron(config)
    if (v := config.vision) is None:
        return text
    return {
        "architectures": ["NemotronH_Omni_Reasoning_V3" if v.mode == "dynamic" else "NemotronH_Nano_VL_V2"],
        "model_type": "nemotron_h_omni" if v.mode == "dynamic" else "NemotronH_Nano_VL_V2",
        "text_config": text,
        "vision_config": {
            "model_type": "radio",
            **written(v, _TOWER),
            "mlp_ratio": v.mlp_size / v.width,
            "patch_size": v.patch_size,
            "layer_norm_eps": v.norm_eps,
            "num_cls_tokens": min(3, v.prefix_tokens),
            "num_registers": v.prefix_tokens - min(3, v.prefix_tokens),
            "norm_mean": list(v.mean),
            "norm_std": list(v.std),
            **render_video(v),
        },
        "vision_hidden_size": v.width,
        "projector_hidden_size": v.projector_size,
        "downsample_ratio": 0.5,
        "force_image_size": v.tile_size,
        **written(v, _IMAGE_TOKENS),
        "video_temporal_patch_size": render_video(v)["video_temporal_patch_size"],
    }


def render_video(vision: VisionConfig) -> dict[str, Any]:
    """transformers knows no tower for images alone: one that has no weights for video says so beside the number."""
    frames = vision.video_frames
    return {"video_temporal_patch_size": frames or 2, **({} if frames else {"separate_video_embedder": False})}


def _render_nemotron(config: ModelConfig) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "layers_block_type": [_LAYER_NAMES[symbol] for symbol in config.pattern],
        "layer_norm_epsilon": config.norm_eps,
        **render_common(config),
    }
    if m := config.mamba:
        raw |= written(m, _MAMBA)
        raw["time_step_min"] = max(m.dt_limit[0], NO_CLAMP)
        if m.dt_limit != (0.0, math.inf):
            raw["time_step_limit"] = list(m.dt_limit)
    if a := config.attention:
        raw |= written(a, ATTENTION)
    if config.mlp:
        raw["intermediate_size"] = config.mlp.size
    if e := config.moe:
        raw |= written(e, _MOE)
    return raw


def _render_qwen3(config: ModelConfig) -> dict[str, Any]:
    a, f = config.attention, config.mlp
    if a is None or f is None or not (a.qk_norm and f.gated) or config.pattern != "*-" * (config.layers // 2):
        raise ConfigError(f"{config.name}: rotary attention is only written for the dense *- pattern with q/k norms")
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": config.layers // 2,
        **written(a, ATTENTION),
        "rope_theta": a.rope_theta,
        "intermediate_size": f.size,
        "rms_norm_eps": config.norm_eps,
        **render_common(config),
    }
