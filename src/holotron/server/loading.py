"""From the options to the two halves of a served model: what reads and writes text, and the engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from holotron.engine.config import EngineConfig, fit_to_memory
from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.model.checkpoint.config_json import read_config
from holotron.model.config import ModelConfig
from holotron.model.loading import find_checkpoint, load
from holotron.model.presets import preset
from holotron.model.text.byte_tokenizer import byte_tokenizer
from holotron.model.text.chat_template import DEFAULT_TEMPLATE, ChatTemplate, load_chat_template
from holotron.model.text.conversation import ConversationWriter
from holotron.model.text.policy_tokenizer import has_pieces
from holotron.model.text.tokenizer import Tokenizer, load_tokenizer
from holotron.server.messages import EngineOptions

GIB = 2**30
# Beside sessions the device holds activations, graphs and libraries.
DEVICE_RESERVE = 10 * GIB
CPU_MEMORY = 2 * GIB


@dataclass(frozen=True)
class Texts:
    """What the HTTP process needs of a model: it never loads weights."""

    config: ModelConfig
    tokenizer: Tokenizer
    template: ChatTemplate
    prompts: ConversationWriter


def load_texts(options: EngineOptions) -> Texts:
    """The tokenizer and chat template of the model; a random one reads and writes bytes."""
    if options.random:
        config = preset(options.model).config
        tokenizer, template = byte_tokenizer(config), ChatTemplate(DEFAULT_TEMPLATE.read_text(encoding="utf-8"))
    else:
        folder = find_checkpoint(options.model)
        config = read_config(folder)
        tokenizer, template = load_tokenizer(folder), load_chat_template(folder)
    return Texts(config, tokenizer, template, ConversationWriter(tokenizer, template, config))


def build_engine(options: EngineOptions) -> Engine:
    """Load the model and give it the memory there is."""
    if options.threads:
        torch.set_num_threads(options.threads)
    tokenizer = load_texts(options).tokenizer
    model = load(options.model, options.device, _weight_dtype(options, tokenizer), random_weights=options.random)
    config = _engine_config(options, model.config, model.device, model.dtype)
    return Engine(model, config, tokenizer)


def _weight_dtype(options: EngineOptions, tokenizer: Tokenizer) -> torch.dtype | None:
    """As asked for, else as stored; small policies on a CPU in float32, as most CPUs are slow in 16 bits."""
    on_cpu = options.device == "cpu" or (options.device is None and not torch.cuda.is_available())
    if options.dtype is None and on_cpu and has_pieces(tokenizer):
        return torch.float32
    return _dtype(options.dtype)


def _engine_config(
    options: EngineOptions, config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> EngineConfig:
    if options.memory_gib is not None:
        free = int(options.memory_gib * GIB)
    else:
        free = torch.cuda.mem_get_info(device)[0] - DEVICE_RESERVE if device.type == "cuda" else CPU_MEMORY
    context = min(options.max_context, config.max_positions)
    return fit_to_memory(
        config,
        free,
        tokens_per_session=min(options.tokens_per_session, context),
        dtype=dtype,
        max_context=context,
        prefill_tokens=options.prefill_tokens,
        checkpoints=options.checkpoints,
        state_dtype=_dtype(options.state_dtype) or torch.float32,
        kv_dtype=_dtype(options.kv_dtype),
        host_bytes=int(options.host_gib * GIB),
        disk_bytes=int(options.disk_gib * GIB),
        disk_folder=Path(options.disk_folder) if options.disk_folder else None,
    )


_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
}


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    if name not in _DTYPES:
        raise EngineError(f"{name!r} is no type of numbers known here; choose one of {', '.join(_DTYPES)}")
    return _DTYPES[name]
