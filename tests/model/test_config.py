"""Sizes that must come out exactly, and configs that must be refused by key."""

import json
from dataclasses import replace

import pytest
import torch

from holotron.model.checkpoint.config_json import parse_config, read_config, render_config
from holotron.model.config import AttentionConfig, MambaConfig, MlpConfig, ModelConfig, MoeConfig, VisionConfig
from holotron.model.errors import ConfigError
from holotron.model.model import Model
from holotron.model.presets import PRESETS, preset

from .tiny import DENSE_TRANSFORMER, tiny_config, tiny_vision

MIB = 2**20


def test_the_12b_in_numbers():
    config = preset("holotron-12b").config
    assert (config.layers, config.count("M"), config.count("-"), config.count("*")) == (62, 28, 28, 6)
    assert config.text_parameters == 12_310_001_152
    assert config.layer_parameters == {"M": 168_504_704, "-": 209_720_320, "*": 62_919_680}
    assert config.mamba.projection_size == 22_656
    assert config.mamba.conv_channels == 12_288
    assert 2 * config.kv_values_per_token == 24_576
    assert 2 * config.ssm_values == 70 * MIB
    assert 4 * config.ssm_values == 140 * MIB
    assert 2 * config.conv_values / MIB == pytest.approx(1.97, abs=0.005)
    assert config.vision_parameters == pytest.approx(0.65e9, rel=0.01)
    assert config.projector_parameters == pytest.approx(0.21e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "parameters", "pattern_counts"),
    [
        ("nemotron-nano-12b-v2", 12_310_001_152, (28, 28, 6)),
        ("nemotron-nano-9b-v2", 8_888_227_328, (27, 25, 4)),
        ("nemotron-h-8b", 8_100_852_736, (24, 24, 4)),
        ("nemotron-3-nano-30b-a3b", 31_577_940_288, (23, 23, 6)),
        ("nemotron-3-super-120b-a12b", 120_668_707_840, (40, 40, 8)),
        ("qwen3-8b", 8_190_735_360, (0, 36, 36)),
    ],
)
def test_published_models(name, parameters, pattern_counts):
    config = preset(name).config
    assert config.text_parameters == parameters
    assert (config.count("M"), config.count("-") + config.count("E"), config.count("*")) == pattern_counts


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("holo2-4b", 4_437_815_808),
        ("holo2-8b", 8_767_123_696),
        ("holo2-30b-a3b", 31_070_754_032),
        ("holo1.5-7b", 8_292_166_656),
    ],
)
def test_published_vision_language_models(name, parameters):
    assert preset(name).config.parameters == parameters


def test_active_parameters_of_the_mixtures():
    assert preset("nemotron-3-nano-30b-a3b").config.active_parameters == pytest.approx(3.2e9, rel=0.05)
    assert preset("nemotron-3-super-120b-a12b").config.active_parameters == pytest.approx(12e9, rel=0.05)


@pytest.mark.parametrize("name", PRESETS)
def test_computed_sizes_are_those_of_the_module(name):
    config = PRESETS[name].config
    with torch.device("meta"):
        model = Model(config)
    assert sum(p.numel() for p in model.decoder.parameters()) == config.text_parameters
    assert sum(p.numel() for p in model.parameters()) == config.parameters


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_being_written(name):
    config = PRESETS[name].config
    again = parse_config(json.loads(json.dumps(render_config(config))), name)
    if config.vision:  # what preprocessor_config.json holds
        sizes = {key: getattr(config.vision, key) for key in ("min_patches", "max_patches", "thumbnail", "max_tiles")}
        again = replace(again, vision=replace(again.vision, **sizes))
    assert again == config


def test_unknown_preset():
    with pytest.raises(ConfigError, match="no model is called 'gpt-9'; known are holotron-12b"):
        preset("gpt-9")


# ---- configs in files ----

# The keys of the released vision-language configuration that matter here.
RELEASED_VL = {
    "architectures": ["NemotronH_Nano_VL_V2"],
    "model_type": "NemotronH_Nano_VL_V2",
    "downsample_ratio": 0.5,
    "force_image_size": 512,
    "img_context_token_id": 131072,
    "norm_mean": [0.48145466, 0.4578275, 0.40821073],
    "norm_std": [0.26862954, 0.26130258, 0.27577711],
    "patch_size": 16,
    "projector_hidden_size": 20480,
    "ps_version": "v2",
    "use_thumbnail": True,
    "vit_hidden_size": 1280,
    "llm_config": {
        "model_type": "nemotron_h",
        "hybrid_override_pattern": "M-M-M-M*-" * 6 + "M-M-M-M-",
        "num_hidden_layers": 62,
        "hidden_size": 5120,
        "intermediate_size": 20480,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "mamba_num_heads": 128,
        "mamba_head_dim": 80,
        "ssm_state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
        "expand": 2,
        "use_conv_bias": True,
        "chunk_size": 128,
        "rms_norm_eps": 1e-05,
        "mlp_hidden_act": "relu2",
        "time_step_limit": [0.0, float("inf")],
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "eos_token_id": 12,
    },
    "vision_config": {
        "args": {"model": "vit_huge_patch16_224", "cpe_max_size": 2048, "register_multiple": 8},
        "max_resolution": 2048,
        "patch_size": 16,
    },
}


def test_the_released_vision_language_config_is_the_preset():
    tokens = {"<img>": 19, "</img>": 20}
    config = parse_config(RELEASED_VL | {"img_context_token_id": 18}, "holotron-12b", tokens.get)
    assert config == preset("holotron-12b").config
    assert parse_config(RELEASED_VL, "holotron-12b").vision.image_token_id == 131072  # nothing is looked up for it


def test_a_released_config_can_ask_for_dynamic_resolution():
    raw = RELEASED_VL | {
        "vision_config": {"args": {"model": "vit_huge_patch16_224", "min_num_patches": 256, "max_num_patches": 4096}}
    }
    vision = parse_config(raw, "x").vision
    assert (vision.mode, vision.min_patches, vision.max_patches) == ("dynamic", 256, 4096)


def test_infinity_as_transformers_writes_it():
    raw = render_config(tiny_config()) | {"time_step_limit": [0.0, {"__float__": "Infinity"}]}
    assert parse_config(raw, "x").mamba.dt_limit == (0.0, float("inf"))


def test_older_names_of_layer_types_and_keys():
    raw = render_config(tiny_config("M*-"))
    raw["layers_block_type"] = ["mamba", "attention", "mlp"]
    raw["mamba_n_groups"] = raw.pop("n_groups")
    raw["mamba_d_conv"] = raw.pop("conv_kernel")
    raw["mamba_chunk_size"] = raw.pop("chunk_size")
    assert parse_config(raw, "tiny") == tiny_config("M*-")


def changed(**changes):
    return render_config(tiny_config("M-*E")) | changes


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"model_type": "jamba"}, "model_type 'jamba' is not supported; supported are nemotron_h, qwen3"),
        ({}, "model_type None is not supported"),
        (changed(layers_block_type=None), "neither hybrid_override_pattern nor layers_block_type"),
        (changed(hybrid_override_pattern="M-X*"), "layer 2 of the pattern is 'X'"),
        (changed(hybrid_override_pattern=""), "pattern is empty"),
        (changed(hybrid_override_pattern=5), "hybrid_override_pattern is 5"),
        (changed(num_hidden_layers=7), "has 4 layers, num_hidden_layers says 7"),
        (changed(mlp_hidden_act="gelu"), "mlp_hidden_act is 'gelu'"),
        (changed(mamba_hidden_act="relu"), "mamba_hidden_act is 'relu'"),
        (changed(attention_bias=True), "attention_bias is True"),
        (changed(mlp_bias=True), "mlp_bias is True"),
        (changed(use_bias=True), "use_bias is True"),
        (changed(residual_in_fp32=True), "residual_in_fp32 is True"),
        (changed(sliding_window=512), "sliding_window is 512"),
        (changed(n_shared_experts=2), "n_shared_experts is 2"),
        (changed(time_step_limit=[1]), "time_step_limit"),
        (changed(hidden_size=None), "lacks hidden_size"),
        (changed(hidden_size="wide"), "hidden_size is 'wide'"),
        (changed(hidden_size=0), "hidden_size is 0"),
        (changed(mamba_num_heads=3, n_groups=2), "heads \\(3\\) must be a multiple of groups"),
        (changed(num_attention_heads=3, num_key_value_heads=2), "heads \\(3\\) must be a multiple of kv heads"),
        (changed(num_experts_per_tok=9), "experts_per_token \\(9\\) exceeds experts"),
        (changed(conv_kernel=1), "conv_kernel is 1"),
        (RELEASED_VL | {"llm_config": None}, "needs llm_config"),
        (RELEASED_VL | {"vision_config": {"args": {"model": "vit_giant"}}}, "args.model is 'vit_giant'"),
        (RELEASED_VL | {"downsample_ratio": 0.25}, "downsample_ratio is 0.25"),
        (RELEASED_VL | {"norm_mean": [1]}, "norm_mean is \\[1\\]"),
        (RELEASED_VL | {"img_start_token_id": "<img>"}, "img_start_token_id is '<img>'; it must be an integer"),
        (RELEASED_VL | {"vision_config": {"hidden_act": "relu"}}, "vision_config: hidden_act is 'relu'"),
    ],
)
def test_configs_that_would_compute_something_else(raw, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(raw, "x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type is 'yarn'"),
        ({"rope_scaling": {"type": "linear"}}, "rope_type is 'linear'"),
        ({"use_sliding_window": True, "sliding_window": 128}, "use_sliding_window"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ],
)
def test_transformers_that_would_compute_something_else(change, message):
    raw = render_config(tiny_config(**DENSE_TRANSFORMER)) | change
    with pytest.raises(ConfigError, match=message):
        parse_config(raw, "x")


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00"])
def test_broken_config_file(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        read_config(tmp_path)


def test_missing_config_file(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json does not exist; a checkpoint folder holds"):
        read_config(tmp_path)


def test_processor_file_changes_image_sizes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(RELEASED_VL))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"max_num_tiles": 4, "norm_mean": [0.5, 0.5, 0.5]}))
    vision = read_config(tmp_path).vision
    assert (vision.max_tiles, vision.mean) == (4, (0.5, 0.5, 0.5))
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(ConfigError, match="preprocessor_config"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelConfig("x", "M", 8, 8), "has M layers but no Mamba-2"),
        (lambda: ModelConfig("x", "-", 8, 8), "has - layers but no MLP"),
        (lambda: MlpConfig(0), "MlpConfig.size is 0"),
        (lambda: MlpConfig(True), "MlpConfig.size is True"),
        (lambda: MambaConfig(heads=4, head_dim=-1), "head_dim is -1"),
        (lambda: AttentionConfig(2, 2, 7, rope_theta=1e4), "even head_dim"),
        (lambda: MoeConfig(4, 2, 8, 8, groups=3), "cannot be 3 groups"),
        (lambda: MoeConfig(4, 3, 8, 8, groups=2), "exceeds the experts in 1 groups"),
        (lambda: VisionConfig(width=10, heads=3), "multiple of heads"),
        (lambda: VisionConfig(tile_size=40), "multiple of 32"),
        (lambda: VisionConfig(max_image_size=100), "multiple of 16"),
        (lambda: VisionConfig(mode="mosaic"), "mosaic"),
        (lambda: VisionConfig(prefix_tokens=-1), "prefix_tokens is -1"),
    ],
)
def test_contradictions(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_unknown_keys_are_errors():
    with pytest.raises(TypeError):
        VisionConfig(widht=3)


def test_rotary_hybrids_cannot_be_written():
    config = tiny_config("M*-", attention=DENSE_TRANSFORMER["attention"])
    with pytest.raises(ConfigError, match="only written for the dense"):
        render_config(config)
    assert render_config(replace(tiny_config("M-"), vision=tiny_vision()))["model_type"] == "nemotron_h_omni"
