"""Fields of a config.json: read with their types checked, and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from holotron.model.config import ModelConfig
from holotron.model.errors import ConfigError

Raw = Mapping[str, Any]

# Our fields and the keys that hold them in a config.json. The first is written; the others are read, too.
Keys = Mapping[str, tuple[str, ...]]

ATTENTION: Keys = {"heads": ("num_attention_heads",), "kv_heads": ("num_key_value_heads",), "head_dim": ("head_dim",)}


def integer(raw: Raw, name: str, key: str, default: int | None = None) -> int:
    value = raw.get(key)
    if value is None:
        value = default
    if value is None:
        raise ConfigError(f"{name}: the config lacks {key}")
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name}: {key} is {value!r}; it must be an integer")
    return value


def refuse(raw: Raw, name: str, key: str, *, allowed: tuple[Any, ...]) -> None:
    if key in raw and raw[key] not in allowed:
        raise ConfigError(f"{name}: {key} is {raw[key]!r}; only {' or '.join(map(repr, allowed))} is supported")


def given(kind: type, keys: Keys, raw: Raw, name: str) -> dict[str, Any]:
    """The fields of one part that a config gives; those that it leaves out keep their defaults."""
    values: dict[str, Any] = {}
    for field in (field for field in fields(kind) if field.name in keys):
        theirs = keys[field.name]
        key = next((key for key in theirs if raw.get(key) is not None), theirs[0])
        if field.type in ("bool", "float"):
            if key in raw:
                values[field.name] = bool(raw[key]) if field.type == "bool" else float(raw[key])
        elif raw.get(key) is not None or field.default is MISSING:
            values[field.name] = integer(raw, name, key)
    return values


def written(part: Any, keys: Keys) -> dict[str, Any]:
    return {theirs[0]: getattr(part, ours) for ours, theirs in keys.items()}


def attention_sizes(raw: Raw, name: str) -> tuple[int, int, int]:
    heads = integer(raw, name, "num_attention_heads")
    head_dim = integer(raw, name, "head_dim", integer(raw, name, "attention_head_dim", 128))
    return heads, integer(raw, name, "num_key_value_heads", heads), head_dim


def common(raw: Raw, name: str, *, bos: int | None, eos: int | None, pad: int | None) -> dict[str, Any]:
    end = raw.get("eos_token_id", eos)
    return {
        "name": name,
        "hidden_size": integer(raw, name, "hidden_size"),
        "vocab_size": integer(raw, name, "vocab_size"),
        "tied_embeddings": bool(raw.get("tie_word_embeddings", False)),
        "bos_token_id": raw.get("bos_token_id", bos),
        "eos_token_ids": tuple(end) if isinstance(end, list) else () if end is None else (end,),
        "pad_token_id": raw.get("pad_token_id", pad),
    }


def render_common(config: ModelConfig) -> dict[str, Any]:
    end = config.eos_token_ids
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "tie_word_embeddings": config.tied_embeddings,
        "max_position_embeddings": config.max_positions,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": end[0] if len(end) == 1 else list(end) or None,
        "pad_token_id": config.pad_token_id,
    }
