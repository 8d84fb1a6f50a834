"""Qwen3-VL, with experts too, and Qwen2.5-VL: our logits, images and files are transformers'."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("transformers")

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from holotron.model.checkpoint.config_json import read_config
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import QwenVisionConfig
from holotron.model.errors import ConfigError, ImageError
from holotron.model.grids import image_tokens, scaled_grid
from holotron.model.model import Model
from holotron.model.mrope import mrope_positions, mrope_shift
from holotron.model.tiling import ImageProcessor

from . import oracle, qwen_oracle
from .oracle import transformers
from .tiny import tiny_config, tiny_model, tiny_qwen

PROMPTS = ([], [(4, 6)], [(2, 2), (6, 10), (8, 2)], [(4, 6), (4, 6)])


def worst_difference(ours: Model, theirs: torch.nn.Module, seed: int) -> float:
    """Over sequences of unequal lengths in one batch, with none to three images."""
    drawn = [qwen_oracle.prompt(seed + number, grids) for number, grids in enumerate(PROMPTS)]
    images = [image for _, places in drawn for _, image in places]
    with torch.no_grad():
        embeddings = ours.encode_images(images)
        scored = ours.score([ids for ids, _ in drawn], embeddings, [image.grids[0] for image in images])
    expected = [qwen_oracle.their_logits(theirs, ids, [image for _, image in places]) for ids, places in drawn]
    assert max(logits.abs().max() for logits in expected) > 0.5, "the oracle's logits are too small to tell anything"
    return max(oracle.difference(a, b) for a, b in zip(scored, expected, strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", qwen_oracle.KINDS)
def test_logits(kind: str, seed: int, tmp_path):
    theirs = qwen_oracle.make_qwen_vl(seed, kind)
    folder = oracle.save(theirs, tmp_path / "model")
    ours = load_checkpoint(folder)
    assert sum(p.numel() for p in ours.parameters()) == ours.config.parameters
    assert worst_difference(ours, theirs, seed) < 1e-4
    ours = load_checkpoint(folder, dtype=torch.float64)
    with oracle.in_float64():
        assert worst_difference(ours, qwen_oracle.exactly(theirs), seed) < 1e-9


# ---- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "expert_size"), [("qwen3", 0), ("experts", 8), ("experts", 12), ("qwen2.5", 0)])
def test_what_is_written_here_transformers_reads(kind: str, expert_size: int, tmp_path):
    """With experts of which one matrix is square, too: transformers could not tell it from a transposed one."""
    parts = tiny_qwen(kind)
    parts["moe"] = replace(parts["moe"], expert_size=expert_size or 1)
    ours = tiny_model(seed=1, dtype=torch.float32, **parts)
    save_checkpoint(ours, tmp_path / "ours")
    theirs = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "ours", dtype=torch.float32).eval()
    ids, places = qwen_oracle.prompt(1, [(4, 6), (2, 4)])
    image_token = ours.config.vision.image_token_id
    ids = [image_token if id_ == oracle.IMAGE_TOKEN else id_ % image_token for id_ in ids]
    images = [image for _, image in places]
    inputs = qwen_oracle.their_inputs(ids, images)
    inputs["mm_token_type_ids"] = (inputs["input_ids"] == image_token).int()
    with torch.no_grad():
        expected = theirs(**inputs, use_cache=False).logits[0]
        (logits,) = ours.score([ids], ours.encode_images(images), [image.grids[0] for image in images])
    assert oracle.difference(logits, expected) < 1e-4
    assert replace(read_config(tmp_path / "ours"), name="tiny") == ours.config


@pytest.mark.parametrize("kind", qwen_oracle.KINDS)
def test_a_model_is_written_in_the_spelling_it_was_read_in(kind: str, tmp_path):
    """As transformers writes it, and in the other one in use: experts transposed, or the tower named otherwise."""
    theirs = oracle.save(qwen_oracle.make_qwen_vl(3, kind), tmp_path / "theirs")
    tensors = load_file(theirs / "model.safetensors")
    other = {}
    for name, tensor in tensors.items():
        if kind == "qwen2.5":
            name = name.replace("visual.", "model.visual.") if name.startswith("visual.") else name
            name = name.replace("model.", "model.language_model.", 1) if "visual" not in name else name
        other[name] = tensor.transpose(1, 2).contiguous() if ".experts." in name else tensor
    (tmp_path / "other").mkdir()
    save_file(other, tmp_path / "other" / "model.safetensors", {"format": "pt"})
    (tmp_path / "other" / "config.json").write_text((theirs / "config.json").read_text())
    first = load_checkpoint(theirs)
    for folder, expected in ((theirs, tensors), (tmp_path / "other", other)):
        model = load_checkpoint(folder)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), first.parameters(), strict=True))
        save_checkpoint(model, tmp_path / f"{folder.name}-again")
        with safe_open(tmp_path / f"{folder.name}-again" / "model.safetensors", "pt") as again:
            assert sorted(again.keys()) == sorted(expected)
            assert all(torch.equal(again.get_tensor(name), expected[name]) for name in expected)


def test_a_model_that_was_taught_with_smaller_images_is_written_so(tmp_path):
    save_checkpoint(tiny_model(dtype=torch.float32, **tiny_qwen("qwen3")), tmp_path / "start")
    model = load_checkpoint(tmp_path / "start")
    vision = model.config.vision.shrunk(16)
    assert scaled_grid(1024, 1024, vision) == (4, 4)
    model.config = replace(model.config, vision=vision)
    save_checkpoint(model, tmp_path / "smaller")
    assert read_config(tmp_path / "smaller").vision == vision


# ---- images ---------------------------------------------------------------------------------------------------------


def vision_of(version: str, **changes) -> QwenVisionConfig:
    patch = 14 if version == "2.5" else 16
    values = {"version": version, "patch_size": patch, "max_image_size": 48 * patch}
    values["window_size"] = 112 if version == "2.5" else None
    return QwenVisionConfig(**(values | changes))


@pytest.mark.parametrize("version", ["2.5", "3"])
def test_images_are_prepared_as_in_transformers(version: str, tmp_path):
    """Sizes equal, pixels equal to 8 bits, normalised values to the last bits of float32."""
    draw = np.random.default_rng(5)
    vision = vision_of(version, min_pixels=40_000, max_pixels=300_000)
    size = {"shortest_edge": vision.min_pixels, "longest_edge": vision.max_pixels}
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(
        size=size, patch_size=vision.patch_size, image_mean=vision.mean, image_std=vision.std
    )
    for width, height in [(640, 360), (50, 70), (700, 33), (1280, 800), (448, 448)]:
        image = Image.fromarray(draw.integers(0, 256, (height, width, 3), np.uint8))
        ours = ImageProcessor(vision)(image)
        theirs = processor(images=[image], return_tensors="pt")
        assert theirs["image_grid_thw"].tolist() == [[1, *ours.grids[0]]]
        difference = qwen_oracle.their_patches(ours) - theirs["pixel_values"]
        assert difference.abs().max() < 1e-6


def test_sizes_of_images_are_those_of_transformers():
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    draw = random.Random(1)
    for vision in (vision_of("2.5", min_pixels=3136, max_pixels=12845056), vision_of("3")):
        token = 2 * vision.patch_size
        for _ in range(300):
            width, height = (draw.choice([draw.randint(1, 200), draw.randint(1, 6000)]) for _ in range(2))
            if max(width, height) / min(width, height) > 200:
                with pytest.raises(ImageError, match="200 times"):
                    scaled_grid(width, height, vision)
                continue
            expected = smart_resize(height, width, token, vision.min_pixels, vision.max_pixels)
            assert tuple(vision.patch_size * side for side in scaled_grid(width, height, vision)) == expected


def test_a_full_screen_in_tokens():
    assert image_tokens(1920, 1080, vision_of("3")) == 60 * 34
    assert image_tokens(1920, 1080, vision_of("2.5", max_pixels=12845056)) == 69 * 39


def test_the_processor_beside_a_config_is_read(tmp_path):
    theirs = oracle.save(qwen_oracle.make_qwen_vl(0, "qwen3"), tmp_path / "model")
    assert read_config(theirs).vision.max_pixels == 16777216
    processor = transformers.models.qwen2_vl.image_processing_pil_qwen2_vl.Qwen2VLImageProcessorPil
    processor(min_pixels=4096, max_pixels=65536, image_mean=[0.1, 0.2, 0.3]).save_pretrained(theirs)
    vision = read_config(theirs).vision
    assert (vision.min_pixels, vision.max_pixels, vision.mean) == (4096, 65536, (0.1, 0.2, 0.3))
    path = theirs / "preprocessor_config.json"
    path.write_text(json.dumps({"min_pixels": 784, "max_pixels": 100352}))
    vision = read_config(theirs).vision
    assert (vision.min_pixels, vision.max_pixels) == (784, 100352)


# ---- positions and configs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen3", "qwen2.5"])
def test_positions_are_those_of_transformers_from_any_token_on(kind: str):
    theirs = qwen_oracle.make_qwen_vl(0, kind).model
    ids, places = qwen_oracle.prompt(4, [(2, 2), (6, 10), (8, 2), (4, 4)])
    inputs = qwen_oracle.their_inputs(ids, [image for _, image in places])
    expected, deltas = theirs.get_rope_index(
        inputs["input_ids"], mm_token_type_ids=inputs["mm_token_type_ids"], image_grid_thw=inputs["image_grid_thw"]
    )
    images = [(start, image.grids[0]) for start, image in places]
    assert sum(mrope_shift(grid) for _, grid in images) == deltas.item()
    for first in range(len(ids)):
        for count in (1, 7, len(ids) - first):
            got = mrope_positions(first, min(count, len(ids) - first), images)
            assert (got == expected[:, 0, first : first + count].numpy()).all()


def test_configs_that_are_not_followed_are_refused(tmp_path):
    theirs = oracle.save(qwen_oracle.make_qwen_vl(0, "experts"), tmp_path / "model")
    raw = json.loads((theirs / "config.json").read_text())
    for part, key, value in (
        ("vision_config", "spatial_merge_size", 4),
        ("vision_config", "deepstack_visual_indexes", [9]),
        ("text_config", "attention_bias", True),
        ("text_config", "rope_parameters", {"rope_type": "yarn"}),
        ("text_config", "rope_parameters", {"mrope_section": [1, 2, 3]}),
        ("text_config", "norm_topk_prob", False),
    ):
        changed = raw | {part: raw[part] | {key: value}}
        (theirs / "config.json").write_text(json.dumps(changed))
        with pytest.raises(ConfigError):
            read_config(theirs)
    with pytest.raises(ConfigError, match="'scaled'"):
        tiny_config(**tiny_qwen("qwen3") | {"vision": vision_of("3", mode="tiles")})
