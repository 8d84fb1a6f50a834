"""Replacing a model's weights in place, all or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

from holotron.engine.errors import EngineError
from holotron.model.adapters import held_changes
from holotron.model.checkpoint import int8
from holotron.model.checkpoint.adapter import A, B, LowRank
from holotron.model.checkpoint.names import Stored, default_dialect, is_dropped, is_kept
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.fp8 import FP8, quantized, weight_scales
from holotron.model.model import Model

NUMBERS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
# Of each width of a number, the whole number of as many bits; two of 64, whose highest would hardly count in a sum.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
GOLDEN = -7046029254386353131  # 2**64 by the golden ratio, as a signed number
COPIED = 2**28  # bytes of numbers of another type that are looked through at once
SUMMED = {"cuda": 2**24, "cpu": 2**17}  # values at once: a GPU wants few operations, a CPU what its cache holds


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
    kept, copied = list[tuple[str, Tensor]](), 0
    for name, tensor in source.items():
        if name not in known:
            if not _is_passed_over(name, source, model):
                raise EngineError(f"the model has no weight {name}; one of its names is {next(iter(known))}")
            continue
        parameter, part = known[name]
        target = part.part_of(own[parameter])
        given, kind = _fitting(name, tensor, target, source), torch.float32 if target.dtype == FP8 else target.dtype
        found.append((parameter, part, given))
        kept.append((name, given.to(kind)))  # of 8 bits, scales make it large enough
        copied += 0 if given.dtype == kind else kept[-1][1].nbytes
        if copied >= COPIED:
            _refuse_infinite(kept)
            kept, copied = [], 0
    _refuse_infinite(kept)
    return NewWeights(tuple(found), _fills(model, found))


def _refuse_infinite(tensors: Sequence[tuple[str, Tensor]]) -> None:
    for (name, tensor), largest in zip(tensors, _largest([tensor for _, tensor in tensors]), strict=True):
        if not isfinite(largest):
            raise EngineError(f"{name} holds NaN or infinity, or a number too large for {tensor.dtype}")


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
    is_scale = any(name.endswith(end) and name.removesuffix(end) in source for end in (int8.SUFFIX, int8.REST))
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
        rest = source.get(name + int8.REST)
        if rest is not None and tuple(rest.shape) != (tensor.shape[0], tensor.shape[1] // 2):
            raise EngineError(f"{name}{int8.REST} has shape {list(rest.shape)}, which is not half of its matrix's")
        tensor = int8.unpack(tensor if rest is None else int8.with_rest(tensor, rest), scale)
    if tensor.dtype not in NUMBERS:
        kinds = ", ".join(str(kind).removeprefix("torch.") for kind in NUMBERS)
        raise EngineError(f"{name} holds {str(tensor.dtype).removeprefix('torch.')}; weights are one of {kinds}")
    return tensor


@torch.no_grad()
def copy_weights(model: Model, weights: NewWeights) -> None:
    """Write tensors that `read_weights` has checked into the model, rounded where it has 8 bits."""
    own, scales = dict(model.named_parameters()), weight_scales(model)
    targets, values = list[Tensor](), list[Tensor]()
    for name, part, tensor in weights.tensors:
        if name in scales:
            rounded, scale_O = quantized(tensor.to(model.device))
            scales[name].copy_(scale_O)
            part.part_of(own[name]).copy_(rounded)  # at once: all of them would take the model's memory again
            continue
        targets.append(part.part_of(own[name]))
        values.append(tensor)
    if targets:
        torch._foreach_copy_(targets, values)


def weight_checksums(model: Model) -> dict[str, str]:
    """SHA-256 of every parameter's bytes, by its name, and of the scales of 8-bit ones; equal where every bit is."""
    tensors = dict(model.named_parameters()) | {f"{name}_scale": scale for name, scale in weight_scales(model).items()}
    return {name: sha256(_bytes(tensor)).hexdigest() for name, tensor in tensors.items()}


def _bytes(parameter: Tensor) -> Any:
    return parameter.detach().contiguous().flatten().view(torch.uint8).cpu().numpy()


def held_weights(model: Model, adapter: str | None = None) -> dict[str, Tensor]:
    """What a model computes with, by name: its own weights, or what the adapter of that name adds to them."""
    return dict(model.named_parameters()) if adapter is None else dict(by_tensor(held_changes(model, adapter)))


def by_tensor(changes: Mapping[str, LowRank]) -> Iterable[tuple[str, Tensor]]:
    """The changes of an adapter, each of their tensors with a name."""
    for layer, change in changes.items():
        yield from ((f"{layer}.{A}", change.A_RI), (f"{layer}.{B}", change.B_OR))


@torch.no_grad()
def bit_checksum(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Of names and the bits of all values; quick, on whatever device they are. They may come one after another."""
    told, sums = list[str](), list[Tensor]()
    # Small ones, to be summed together, and how many values they have.
    waiting: dict[tuple[torch.device, torch.dtype], tuple[list[tuple[int, Tensor]], int]] = {}
    for name, weight in weights:
        told.append(f"{name} {tuple(weight.shape)};")
        first, most = int.from_bytes(sha256(told[-1].encode()).digest()[:8], "little"), SUMMED[weight.device.type]
        if (count := weight.numel()) >= most:
            bits = _bits(weight.contiguous().view(-1))
            starts = range(0, len(bits), most)
            sums += [_bit_sum([(first + start, bits[start : start + most])]) for start in starts]
            continue
        kind = weight.device, weight.dtype
        pieces, before = waiting.pop(kind, ([], 0))
        pieces.append((first, weight))
        if before + count >= most:
            sums.append(_bit_sum(pieces))
        else:
            waiting[kind] = pieces, before + count
    sums += [_bit_sum(pieces) for pieces, _ in waiting.values()]
    told.append(str(sum(_values(sums)) % 2**64))
    return sha256("".join(sorted(told)).encode()).hexdigest()[:16]


def _largest(tensors: Sequence[Tensor]) -> list[float]:
    """The largest absolute value of each, NaN or infinity where it holds one."""
    found = [0.0] * len(tensors)
    for kind in {(each.device, each.dtype) for each in tensors}:
        places = [place for place, each in enumerate(tensors) if (each.device, each.dtype) == kind and each.numel()]
        if places:
            norms = torch.stack(torch._foreach_norm([tensors[place] for place in places], float("inf"))).tolist()
            for place, norm in zip(places, norms, strict=True):
                found[place] = norm
    return found


def _values(scalars: Sequence[Tensor]) -> list[Any]:
    """Of numbers on any devices; each device is waited for once."""
    found: list[Any] = [None] * len(scalars)
    for device in {each.device for each in scalars}:
        places = [place for place, each in enumerate(scalars) if each.device == device]
        for place, value in zip(places, torch.stack([scalars[place] for place in places]).tolist(), strict=True):
            found[place] = value
    return found


def _bit_sum(pieces: Sequence[tuple[int, Tensor]]) -> Tensor:
    """Of the bits of each value times a number of its place: neither exchanges nor changes that cancel out pass."""
    together = [values for _, values in pieces]
    # A call for each tensor would give the interpreter away so often, to threads that are at work.
    bits = _bits(_flatten_dense_tensors(together) if len(together) > 1 else together[0].reshape(-1))
    each = len(bits) // max(1, sum(values.numel() for values in together))
    lengths = [values.numel() * each for values in together]
    before = accumulate(lengths, initial=0)  # `before` values of this sum, a piece begins at a place of its own
    firsts = [_signed(first - start) for (first, _), start in zip(pieces, before, strict=False)]
    places = torch.arange(1, 1 + len(bits), device=bits.device)
    if len(pieces) > 1:
        firsts_P, lengths_P = torch.tensor([firsts, lengths], device=bits.device)
        places += torch.repeat_interleave(firsts_P, lengths_P, output_size=len(bits))
    else:
        places += firsts[0]
    places *= GOLDEN
    places ^= places >> 29
    return (bits.long() * places).sum()


def _bits(flat: Tensor) -> Tensor:
    """Its values as whole numbers."""
    return flat.view(_BITS[flat.element_size()])


def _signed(value: int) -> int:
    """Its last 64 bits as a signed number."""
    return (value + 2**63) % 2**64 - 2**63
