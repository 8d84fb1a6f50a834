"""The one place where engines are built: from options to a model, its memory and an engine that runs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import torch

from holotron.engine.config import EngineConfig, fit_to_memory
from holotron.engine.engine import Engine
from holotron.engine.options import CPU_MEMORY, DEVICE_RESERVE, GIB, EngineOptions
from holotron.model.bf16_products import use_bf16_products
from holotron.model.config import ModelConfig
from holotron.model.loading import find_checkpoint, load
from holotron.model.model import Model
from holotron.model.presets import preset
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.model.text.policy_tokenizer import has_pieces
from holotron.model.text.tokenizer import Tokenizer, load_tokenizer
from holotron.ops import multiplies_bf16

__all__ = ["EngineOptions", "build_engine", "engine_config", "load_model"]

# Of an engine's configuration: what is taken from the options as it is.
SAME = {field.name for field in fields(EngineConfig)} & {field.name for field in fields(EngineOptions)}
SAME -= {"max_context", "state_dtype", "kv_dtype", "disk_folder"}
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


def build_engine(
    options: EngineOptions, model: Model | None = None, tokenizer: Tokenizer | None = None, *, stepped: bool = False
) -> Engine:
    """Load the model and give its sessions the memory there is. What is loaded already is taken as it is.

    stepped: without a thread, for a caller that drives the engine's loop itself.
    """
    if options.threads:
        torch.set_num_threads(options.threads)
    if tokenizer is None and options.tokenizer:
        tokenizer = _tokenizer(options)
    model = model or load_model(options, tokenizer)
    config = engine_config(options, model.config, model.device, model.dtype)
    return Engine(model, config, tokenizer, stepped=stepped)


def load_model(options: EngineOptions, tokenizer: Tokenizer | None = None) -> Model:
    """The model alone, for several engines one after another."""
    dtype = DTYPES[options.dtype] if options.dtype else None
    on_cpu = options.device == "cpu" or (options.device is None and not torch.cuda.is_available())
    wants_products = options.bf16_products
    if dtype is None and on_cpu and tokenizer is not None and has_pieces(tokenizer):
        dtype = torch.float32
        wants_products = wants_products is None or wants_products
    adapters = dict(options.adapters)
    model = load(options.model, options.device, dtype, random_weights=options.random, adapters=adapters)
    if wants_products and on_cpu and model.dtype == torch.float32 and multiplies_bf16():
        use_bf16_products(model)
    return model


def _tokenizer(options: EngineOptions) -> Tokenizer:
    """The checkpoint's; a random model reads and writes bytes."""
    if options.random:
        return byte_tokenizer(preset(options.model).config)
    return load_tokenizer(find_checkpoint(options.model))


def engine_config(options: EngineOptions, model: ModelConfig, device: torch.device, dtype: torch.dtype) -> EngineConfig:
    """How the options divide the memory of a device for a model."""
    if options.memory_gib is not None:
        free = int(options.memory_gib * GIB)
    else:
        free = torch.cuda.mem_get_info(device)[0] - DEVICE_RESERVE if device.type == "cuda" else CPU_MEMORY
    context = options.max_context if options.extrapolate else min(options.max_context, model.max_positions)
    return fit_to_memory(
        model,
        free,
        tokens_per_session=min(options.tokens_per_session, context),
        sessions=options.sessions,
        dtype=dtype,
        max_context=context,
        state_dtype=DTYPES[options.state_dtype],
        kv_dtype=DTYPES[options.kv_dtype] if options.kv_dtype else None,
        host_bytes=int(options.host_gib * GIB),
        disk_bytes=int(options.disk_gib * GIB),
        disk_folder=Path(options.disk_folder) if options.disk_folder else None,
        image_cache_bytes=int(options.image_cache_mib * 2**20),
        **{name: getattr(options, name) for name in SAME},
    )
