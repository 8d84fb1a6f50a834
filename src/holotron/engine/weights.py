"""Replacing a model's weights in place, all or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holotron.engine.errors import EngineError
from holotron.model.checkpoint import int8
from holotron.model.checkpoint.names import Stored, default_dialect, is_dropped, is_kept
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.fp8 import FP8, quantized, weight_scales
from holotron.model.model import Model

NUMBERS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class NewWeights:
    """Tensors that fit a model, each with the parameter and the part of it that it fills; whole: they fill all."""

    tensors: tuple[tuple[str, Stored, Tensor], ...]
    whole: bool


def read_weights(model: Model, source: str | Path | Mapping[str, Tensor]) -> NewWeights:
    """The tensors of a checkpoint folder, or given by name (a part will do), once they fit the model.

    Names are those that checkpoints of this model have, in any of their spellings, or its parameters' own. What
    checkpoints carry besides is passed over; 8-bit matrices come with their scales.
    """
    own = dict(model.named_parameters())
    if not isinstance(source, Mapping):
        stored = dict(load_checkpoint(source, "cpu", model.dtype).named_parameters())
        if missing := own.keys() - stored.keys():
            raise EngineError(
                f"{source} lacks {sorted(missing)[0]} and {len(missing) - 1} more of this model's weights"
            )
        source = stored
    known = _names(model)
    found: list[tuple[str, Stored, Tensor]] = []
    for name, tensor in source.items():
        if name not in known:
            if not _is_passed_over(name, source, model):
                raise EngineError(f"the model has no weight {name}; one of its names is {next(iter(known))}")
            continue
        parameter, part = known[name]
        found.append((parameter, part, _fitting(name, tensor, part.part_of(own[parameter]), source)))
    return NewWeights(tuple(found), _fills(model, found))


def join_weights(model: Model, parts: Iterable[NewWeights]) -> NewWeights:
    """Weights that came in parts as one update; of a tensor that came twice the last is taken."""
    came = [each for part in parts for each in part.tensors]
    tensors = {(name, part.index, part.count): (name, part, tensor) for name, part, tensor in came}
    return NewWeights(tuple(tensors.values()), _fills(model, tensors.values()))


def _fills(model: Model, tensors: Iterable[tuple[str, Stored, Tensor]]) -> bool:
    """Whether tensors fill every parameter."""
    filled = Counter[str]()
    for name, _, tensor in tensors:
        filled[name] += tensor.numel()
    # Releases with this norm do not store it.
    needed = ((name, p) for name, p in model.named_parameters() if not name.startswith("vision.final_norm."))
    return all(filled[name] >= parameter.numel() for name, parameter in needed)


def _names(model: Model) -> dict[str, tuple[str, Stored]]:
    """What every name that a tensor may have stands for."""
    dialects = [default_dialect(model.config, released=released) for released in (True, False)]
    if model.source is not None:
        dialects.insert(0, model.source.dialect)
    own = [name for name, _ in model.named_parameters()]
    known: dict[str, tuple[str, Stored]] = {}
    for dialect in dialects:
        for name in own:
            for stored in dialect.stored(name, model.config):
                known.setdefault(stored.name, (name, stored))
    return known | {name: (name, Stored(name)) for name in own}


def _is_passed_over(name: str, source: Mapping[str, Tensor], model: Model) -> bool:
    is_scale = name.endswith(int8.SUFFIX) and name.removesuffix(int8.SUFFIX) in source
    is_tied = model.config.tied_embeddings and name == "lm_head.weight"
    return is_scale or is_tied or is_kept(name) or is_dropped(name)


def _fitting(name: str, tensor: Tensor, target: Tensor, source: Mapping[str, Tensor]) -> Tensor:
    if tensor.shape != target.shape:
        raise EngineError(f"{name} has shape {list(tensor.shape)}; the model's is {list(target.shape)}")
    scale = source.get(name + int8.SUFFIX)
    if tensor.dtype == torch.int8 and scale is not None:
        expected = (tensor.shape[0], tensor.shape[1] // int8.GROUP) if tensor.ndim == 2 else ()
        if tuple(scale.shape) != expected:
            raise EngineError(f"{name}{int8.SUFFIX} has shape {list(scale.shape)}; it must be {list(expected)}")
        tensor = int8.unpack(tensor, scale)
    if tensor.dtype not in NUMBERS:
        kinds = ", ".join(str(kind).removeprefix("torch.") for kind in NUMBERS)
        raise EngineError(f"{name} holds {str(tensor.dtype).removeprefix('torch.')}; weights are one of {kinds}")
    kept = torch.float32 if target.dtype == FP8 else target.dtype  # which scales make large enough
    if not torch.isfinite(tensor.to(kept)).all():
        raise EngineError(f"{name} holds NaN or infinity, or a number too large for {kept}")
    return tensor


@torch.no_grad()
def copy_weights(model: Model, weights: NewWeights) -> None:
    """Write tensors that `read_weights` has checked into the model, rounded where it has 8 bits."""
    own, scales = dict(model.named_parameters()), weight_scales(model)
    for name, part, tensor in weights.tensors:
        if name in scales:
            tensor, scale_O = quantized(tensor.to(model.device))
            scales[name].copy_(scale_O)
        part.part_of(own[name].data).copy_(tensor)


def weight_checksums(model: Model) -> dict[str, str]:
    """SHA-256 of every parameter's bytes, by its name, and of the scales of 8-bit ones; equal where every bit is."""
    tensors = dict(model.named_parameters()) | {f"{name}_scale": scale for name, scale in weight_scales(model).items()}
    return {name: sha256(_bytes(tensor)).hexdigest() for name, tensor in tensors.items()}


def _bytes(parameter: Tensor) -> Any:
    return parameter.detach().contiguous().flatten().view(torch.uint8).cpu().numpy()
