"""LoRA adapters as PEFT writes them: a folder with adapter_config.json and adapter_model.safetensors.

Routed experts are stacked in one parameter. PEFT wraps such parameters of a module one around another: the changes of
the innermost, which is the first, are named with a `base_layer` for each wrapper around it.

Shapes: I inputs and O outputs of a linear layer, R rank, E experts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from holotron.model.checkpoint.companions import read_json
from holotron.model.checkpoint.names import Stored, all_dialects
from holotron.model.checkpoint.storage import first_non_finite, open_tensors
from holotron.model.errors import CheckpointError
from holotron.model.mixers import Experts

if TYPE_CHECKING:
    from holotron.model.model import Model

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
A, B = "lora_A", "lora_B"
PREFIX, WRAPPED = "base_model.model.", ".base_layer"
# Where the linear layers are that can be changed; all of them are run as modules.
PLACES = ("decoder.layers.", "vision.blocks.", "projector.")

# Settings that would change what is computed, and the values under which they do not.
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "trainable_token_indices": (None, {}, []),
    "layer_replication": (None, []),
    "alora_invocation_tokens": (None, []),
    # Others begin by changing the base itself, so that the file alone is not the difference.
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
}


@dataclass(frozen=True)
class LowRank:
    """What an adapter adds to a weight: B A, with the scale in B. Those of experts are stacked, E first."""

    A_RI: Tensor
    B_OR: Tensor


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """The layers of a model that an adapter can change, by name."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith(PLACES)
    }


def expert_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """The stacked weights of routed experts, by name; those of one layer in the order in which PEFT wraps them."""
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, Experts)]
    return {f"{name}.{leaf}": p for name, module in modules for leaf, p in module.named_parameters(recurse=False)}


def read_adapter(model: Model, name: str, folder: Path) -> dict[str, LowRank]:
    """What the adapter in a folder changes, by the name here of a layer or of experts' weights.

    CheckpointError says what is wrong with it.
    """
    settings = read_json(folder / ADAPTER_CONFIG)
    if settings is None or not (folder / ADAPTER).is_file():
        raise CheckpointError(f"adapter {name}: {folder} must hold {ADAPTER_CONFIG} and {ADAPTER}, as PEFT writes them")
    for key, plain in _PLAIN.items():
        if key in settings and settings[key] not in plain:
            raise CheckpointError(f"adapter {name}: {key} is {settings[key]!r}, which is not supported")
    layers = linear_layers(model)
    homes, experts = _homes(model, layers), _expert_homes(model)
    parts: dict[str, list[tuple[Stored, LowRank]]] = {}
    of_experts: dict[str, list[tuple[Tensor, Tensor]]] = {}
    # The more wrappers are around a change, the earlier is what it changes.
    for module, (a_RI, b_OR) in sorted(_pairs(name, folder).items(), key=lambda pair: -pair[0].count(WRAPPED)):
        if (owner := module.replace(WRAPPED, "")) in experts:
            of_experts.setdefault(owner, []).append((a_RI, b_OR))
            continue
        if module not in homes:
            known = ", ".join(sorted({layer.rpartition(".")[2] for layer in layers}))
            raise CheckpointError(
                f"adapter {name}: it changes {module}, which is no linear layer of {model.config.name} that can be "
                f"changed; those are {known}"
            )
        layer, stored = homes[module]
        inputs, outputs = layers[layer].in_features, layers[layer].out_features // stored.count
        if a_RI.ndim != 2 or b_OR.shape != (outputs, len(a_RI)) or a_RI.shape[1] != inputs:
            raise CheckpointError(
                f"adapter {name}: {A} {list(a_RI.shape)} and {B} {list(b_OR.shape)} of {module} do not fit a layer "
                f"of {inputs} inputs and {outputs} outputs"
            )
        scaled = b_OR * _scale(name, settings, module, len(a_RI))
        parts.setdefault(layer, []).append((stored, LowRank(a_RI, scaled)))
    read = {layer: _joined(layers[layer].out_features, found) for layer, found in parts.items()}
    for owner, pairs in of_experts.items():
        read |= _expert_changes(model, name, settings, experts[owner], pairs)
    return read


def _expert_changes(
    model: Model,
    name: str,
    settings: Mapping[str, Any],
    weights: Mapping[str, str],
    pairs: Sequence[tuple[Tensor, Tensor]],
) -> dict[str, LowRank]:
    """The changes of one layer's experts. weights: their names in files, with ours."""
    targets = settings.get("target_parameters") or []
    named = [stored for stored in weights if any(f".{stored}".endswith(f".{target}") for target in targets)]
    if len(named) != len(pairs):
        raise CheckpointError(
            f"adapter {name}: target_parameters names {len(named)} of {', '.join(weights)}, and there are {A} and {B} "
            f"of {len(pairs)}"
        )
    changes: dict[str, LowRank] = {}
    for stored, (a, b) in zip(named, pairs, strict=True):
        experts, outputs, inputs = model.get_parameter(weights[stored]).shape
        rank = len(a) // experts
        if not rank or a.shape != (experts * rank, inputs) or b.shape != (outputs, rank * experts):
            raise CheckpointError(
                f"adapter {name}: {A} {list(a.shape)} and {B} {list(b.shape)} of {stored} do not fit {experts} experts "
                f"of {inputs} inputs and {outputs} outputs"
            )
        b_EOR = b.view(outputs, rank, experts).permute(2, 0, 1) * _scale(name, settings, stored, rank)
        changes[weights[stored]] = LowRank(a.view(experts, rank, inputs), b_EOR)
    return changes


def flat_experts(a_ERI: Tensor, b_EOR: Tensor) -> tuple[Tensor, Tensor]:
    """A and B of stacked experts as PEFT stores them: experts lie outside the rank in A, and inside it in B."""
    return a_ERI.flatten(0, 1), b_EOR.permute(1, 2, 0).flatten(1)


def _pairs(name: str, folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """A and B by the module they change, in float32."""
    found: dict[str, dict[str, Tensor]] = {}
    with open_tensors(folder / ADAPTER) as tensors:
        for key in tensors.keys():  # noqa: SIM118 - this is not a dict
            match = re.fullmatch(rf"{re.escape(PREFIX)}(.+)\.({A}|{B})\.weight", key)
            if match is None:
                raise CheckpointError(f"adapter {name}: the tensor {key} is no {A} or {B} of a linear layer")
            found.setdefault(match[1], {})[match[2]] = tensors.get_tensor(key).float()
    if not found:
        raise CheckpointError(f"adapter {name}: {folder / ADAPTER} holds no tensors")
    for module, pair in found.items():
        if len(pair) < 2:
            raise CheckpointError(f"adapter {name}: {module} has {next(iter(pair))} alone; {A} and {B} come together")
    if bad := first_non_finite([(module, t) for module, pair in found.items() for t in pair.values()]):
        raise CheckpointError(f"adapter {name}: the change of {bad} holds NaN or infinity; the file is damaged")
    return {module: (pair[A], pair[B]) for module, pair in found.items()}


def _homes(model: Model, layers: Mapping[str, nn.Linear]) -> dict[str, tuple[str, Stored]]:
    """Our layers by the names of modules, in every spelling."""
    homes: dict[str, tuple[str, Stored]] = {}
    for dialect in all_dialects(model.config):
        for layer in layers:
            for stored in dialect.stored(f"{layer}.weight", model.config):
                homes[stored.name.removesuffix(".weight")] = (layer, stored)
    return homes


def _expert_homes(model: Model) -> dict[str, dict[str, str]]:
    """The names of experts' weights in files, with ours, by the module that has them, in every spelling."""
    homes: dict[str, dict[str, str]] = {}
    for dialect in all_dialects(model.config):
        for weight in expert_weights(model):
            stored = dialect.stored(weight, model.config)[0].name
            if not stored.endswith(".weight"):  # a module for each expert is none that this can be about
                homes.setdefault(stored.rpartition(".")[0], {})[stored] = weight
    return homes


def _scale(name: str, settings: Mapping[str, Any], module: str, rank: int) -> float:
    alpha = settings.get("lora_alpha")
    for pattern, value in (settings.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            alpha = value
            break
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise CheckpointError(f"adapter {name}: lora_alpha is {alpha!r}; it must be a number")
    return alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)


def _joined(outputs: int, parts: list[tuple[Stored, LowRank]]) -> LowRank:
    """One change of a layer: what changes a part of its rows alone (q of qkv, say) has ranks of its own."""
    if len(parts) == 1 and parts[0][0].count == 1:
        return parts[0][1]
    ranks = [len(change.A_RI) for _, change in parts]
    joined_OR = torch.zeros(outputs, sum(ranks))
    for (stored, change), columns in zip(parts, joined_OR.split(ranks, dim=1), strict=True):
        stored.part_of(columns).copy_(change.B_OR)
    return LowRank(torch.cat([change.A_RI for _, change in parts]), joined_OR)
