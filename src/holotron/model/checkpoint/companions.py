"""What the files beside config.json say about a model: sizes of images, stop ids, the ids of tokens.

The sizes are in preprocessor_config.json, or in processor_config.json under image_processor.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from holotron.model.checkpoint.qwen_config import processor_fields, render_qwen_processor
from holotron.model.config import ModelConfig, QwenVisionConfig, VisionConfig
from holotron.model.errors import ConfigError

PROCESSOR, WHOLE_PROCESSOR = "preprocessor_config.json", "processor_config.json"
GENERATION = "generation_config.json"
# Our fields and the keys that hold them; the first is written, the others are read, too.
_PROCESSOR_KEYS = {
    "min_patches": ("min_num_patches",),
    "max_patches": ("max_num_patches",),
    "max_tiles": ("max_num_tiles",),
    "thumbnail": ("use_thumbnail",),
    "mean": ("norm_mean", "image_mean"),
    "std": ("norm_std", "image_std"),
}

IdOf = Callable[[str], int | None]


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a file, None where there is no file."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds a {type(raw).__name__}, not an object")
    return raw


def overlay_companions(config: ModelConfig, folder: Path) -> ModelConfig:
    """The config with what the other files say: sizes and normalisation of images, and further stop ids."""
    if config.vision is not None:
        config = replace(config, vision=replace(config.vision, **_processor(folder, config.vision)))
    generation = read_json(folder / GENERATION) or {}
    ends = generation.get("eos_token_id")
    ends = [] if ends is None else ends if isinstance(ends, list) else [ends]
    if not all(isinstance(id_, int) for id_ in ends):
        raise ConfigError(f"{folder / GENERATION}: eos_token_id is {ends!r}; it must be an id or a list of ids")
    return replace(config, eos_token_ids=tuple(dict.fromkeys([*ends, *config.eos_token_ids])))


def _processor(folder: Path, vision: VisionConfig) -> dict[str, Any]:
    whole = read_json(folder / WHOLE_PROCESSOR) or {}
    within = whole.get("image_processor")
    given: dict[str, Any] = {}
    for raw in (whole, within if isinstance(within, dict) else {}, read_json(folder / PROCESSOR) or {}):
        given |= processor_fields(raw, folder.name) if isinstance(vision, QwenVisionConfig) else _fields(raw)
    for key in ("mean", "std"):
        if key in given and len(given[key]) != 3:
            raise ConfigError(f"{folder}: the {key} of pixels is {given[key]!r}; it must be three numbers")
    return given


def _fields(raw: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for ours, theirs in _PROCESSOR_KEYS.items():
        key = next((key for key in theirs if raw.get(key) is not None), None)
        if key is not None:
            given[ours] = tuple(raw[key]) if ours in ("mean", "std") else raw[key]
    return given


def render_processor(vision: VisionConfig) -> dict[str, Any]:
    """A preprocessor_config.json for a model that was made here."""
    if isinstance(vision, QwenVisionConfig):
        return render_qwen_processor(vision)
    values = {key: getattr(vision, ours) for ours, theirs in _PROCESSOR_KEYS.items() for key in theirs}
    return values | {"patch_size": vision.patch_size, "downsample_ratio": 0.5}


def token_ids(folder: Path) -> IdOf | None:
    """Ids of tokens by their text, None for a text that is not one token; no function where there is no tokenizer."""
    path = folder / "tokenizer.json"

    @cache
    def known() -> dict[str, int]:
        raw = read_json(path) or {}
        vocabulary = (raw.get("model") or {}).get("vocab")
        added = {entry["content"]: entry["id"] for entry in raw.get("added_tokens") or ()}
        return (vocabulary if isinstance(vocabulary, dict) else {}) | added

    return (lambda token: known().get(token)) if path.is_file() else None
