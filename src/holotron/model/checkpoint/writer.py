"""Writing a model as a checkpoint folder."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from holotron.model.checkpoint import int8
from holotron.model.checkpoint.companions import PROCESSOR, WHOLE_PROCESSOR, render_processor
from holotron.model.checkpoint.config_json import NO_CLAMP, read_config, render_config, render_video
from holotron.model.checkpoint.names import Dialect, default_dialect
from holotron.model.checkpoint.storage import INDEX
from holotron.model.config import ModelConfig, QwenVisionConfig
from holotron.model.errors import CheckpointError
from holotron.model.fp8 import refuse_fp8
from holotron.model.model import Model

# Files that are weights, in whatever form; everything else beside them is carried over when a model is written again.
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".h5", ".msgpack", ".index.json")
QUANTIZED = ("quantization_config", "compression_config")  # of what was read: what is written has 16 bits


def save_checkpoint(
    model: Model,
    folder: str | Path,
    *,
    overwrite: bool = False,
    max_shard_bytes: int = 4 * 2**30,
    bits: int = 16,
    weights: Iterable[tuple[str, Tensor]] | None = None,
) -> None:
    """Write the model as a checkpoint folder, in the dialect it was read in.

    The folder appears whole or not at all: everything is written beside it first and renamed at the end. With 8 or 12
    bits matrices are rounded and take less room (int8.py); with 16 every tensor stays in its own type. `weights` are
    the parameters by name, for a model that has no memory for them: no more than a file's are held at a time.
    """
    if bits not in (*int8.BITS, 16):
        raise CheckpointError(f"weights cannot be stored in {bits} bits; choose 8, 12 or 16")
    refuse_fp8(model, "writing a checkpoint")
    folder = Path(folder)
    if folder.exists() and not overwrite and any(folder.iterdir()):
        raise CheckpointError(f"{folder} exists and is not empty; choose another folder or pass overwrite=True")
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(model, weights or model.named_parameters(), staging, max_shard_bytes, bits)
        _swap(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write(model: Model, weights: Iterable[tuple[str, Tensor]], folder: Path, max_shard_bytes: int, bits: int) -> None:
    source = model.source
    raw = _stated(source.raw_config, model.config) if source else render_config(model.config)
    for key in ("audio_config", "sound_config"):
        if raw.get(key) is not None:
            raw[key] = None  # its weights were not read
    raw["dtype"] = str(model.dtype).removeprefix("torch.")
    raw.pop("torch_dtype", None)
    dialect = source.dialect if source else default_dialect(model.config)
    tensors = _stored_tensors(model, weights, dialect, twice=bits == 16)
    keys, size = list[list[str]](), 0
    for shard in _shards(_packed(tensors, bits) if bits in int8.BITS else tensors, max_shard_bytes):
        keys.append(list(shard))
        size += sum(tensor.nbytes for tensor in shard.values())
        # Parts of stacked parameters share storage, which the format does not allow.
        path = folder / f"{len(keys)}.part"
        save_file({key: tensor.cpu().clone() for key, tensor in shard.items()}, path, {"format": "pt"})
        _sync(path)
        del shard  # before the next one is made
    weight_map: dict[str, str] = {}
    for number, stored in enumerate(keys, 1):
        name = "model.safetensors" if len(keys) == 1 else f"model-{number:05d}-of-{len(keys):05d}.safetensors"
        (folder / f"{number}.part").rename(folder / name)
        weight_map |= dict.fromkeys(stored, name)
    if len(keys) > 1:
        _write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": weight_map})
    if source:
        for companion in source.folder.iterdir():
            if (
                companion.is_file()
                and not companion.name.endswith((*WEIGHTS, "hf_quant_config.json"))
                and not companion.name.startswith(".")
            ):
                shutil.copyfile(companion, folder / companion.name)
    _write_json(folder / "config.json", raw)
    if model.config.vision:
        _write_processor(folder, render_processor(model.config.vision))


def _write_processor(folder: Path, wanted: dict[str, Any]) -> None:
    """The sizes of images, where the files that are there already do not say them."""
    path, said = folder / PROCESSOR, read_config(folder).vision
    is_there = path.exists() or (folder / WHOLE_PROCESSOR).exists()
    if is_there and said and render_processor(said) == wanted:
        return
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    _write_json(path, kept | wanted)


def _stated(raw_config: dict[str, Any], config: ModelConfig) -> dict[str, Any]:
    """The config as it was read, with what transformers would take otherwise than it is here said in it."""
    raw = copy.deepcopy(raw_config)
    for part in (part for part in (raw, raw.get("text_config"), raw.get("llm_config")) if isinstance(part, dict)):
        for key in QUANTIZED:
            part.pop(key, None)
        if part.get("tie_word_embeddings") and not config.tied_embeddings:
            part["tie_word_embeddings"] = False
        if config.mamba and "mamba_num_heads" in part:
            part.setdefault("time_step_min", max(config.mamba.dt_limit[0], NO_CLAMP))
    radio = config.vision if not isinstance(config.vision, QwenVisionConfig) else None
    if radio and isinstance(tower := raw.get("vision_config"), dict) and "args" not in tower:
        tower |= render_video(radio)
        raw["video_temporal_patch_size"] = tower["video_temporal_patch_size"]
    return raw


def _stored_tensors(
    model: Model, weights: Iterable[tuple[str, Tensor]], dialect: Dialect, *, twice: bool
) -> Iterator[tuple[str, Tensor]]:
    """twice: a tied head is stored beside the embedding, too, for transformers never ties those of the hybrids."""
    twice = twice and model.config.tied_embeddings and not dialect.dense
    for name, parameter in weights:
        if twice and name == "decoder.embeddings.weight":
            yield dialect.stored("decoder.lm_head.weight", model.config)[0].name, parameter.detach()
        for stored in dialect.stored(name, model.config):
            yield stored.name, stored.part_of(parameter.detach()).contiguous()
    if model.source:
        yield from model.source.kept.items()


def _packed(tensors: Iterator[tuple[str, Tensor]], bits: int) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in tensors:
        if int8.is_packable(tensor):
            yield from ((name + suffix, part) for suffix, part in int8.pack(tensor, bits).items())
        else:
            yield name, tensor


def _shards(tensors: Iterator[tuple[str, Tensor]], most: int) -> Iterator[dict[str, Tensor]]:
    """Files of at most that many bytes; what is stored of a matrix stays in one."""
    shard: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors:
        if shard and size + tensor.nbytes > most and not name.endswith((int8.SUFFIX, int8.REST)):
            yield shard
            shard, size = {}, 0
        shard[name] = tensor
        size += tensor.nbytes
    yield shard


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    _sync(path)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _swap(staging: Path, folder: Path) -> None:
    staging.chmod(0o755)
    if not folder.exists():
        staging.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / folder.name)
    try:
        staging.rename(folder)
    except OSError:
        (old / folder.name).rename(folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
