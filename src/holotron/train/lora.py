"""Low-rank changes to frozen linear layers (LoRA): a large policy learns with the optimiser of a small one.

Shapes: T tokens, I inputs and O outputs of a linear layer, R rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from holotron.model.checkpoint.adapter import ADAPTER, ADAPTER_CONFIG, PLACES, PREFIX, A, B, linear_layers
from holotron.model.checkpoint.names import default_dialect
from holotron.model.errors import ModelError
from holotron.model.model import Model
from holotron.ops import low_rank_linear


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank changes instead of whole weights; rank 0 trains everything.

    A target is the end of a linear layer's name: "in_proj", "layers.3.mixer.q_proj", "attn.qkv" in the tower,
    "projector.up". None at all means every linear layer inside the decoder's layers.
    """

    rank: int = 0
    alpha: float = 32.0
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rank < 0 or not self.alpha > 0:
            raise ValueError(f"rank {self.rank} or alpha {self.alpha} is out of range")

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


class LoraLinear(nn.Linear):
    """W x + b + scale · B (A x). W and b are the frozen layer's own, under their names; B starts at zero."""

    def __init__(self, base: nn.Linear, config: LoraConfig, generator: torch.Generator) -> None:
        nn.Module.__init__(self)  # not Linear's: nothing is to be drawn that is thrown away again
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.scale = config.scale
        # float32, also where the base is not: small steps would be lost in 16 bits.
        bound = base.in_features**-0.5
        lora_A_RI = torch.empty(config.rank, base.in_features).uniform_(-bound, bound, generator=generator)
        self.lora_A = nn.Parameter(lora_A_RI.to(base.weight.device))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, config.rank, device=base.weight.device))

    def forward(self, x_TI: Tensor) -> Tensor:
        if x_TI.is_cuda and x_TI.dim() == 2 and self.weight.dtype.itemsize == 2:
            x_TI, B_OR = x_TI.to(self.weight.dtype), (self.scale * self.lora_B).to(self.weight.dtype)
            return low_rank_linear(x_TI, self.weight, self.bias, self.lora_A.to(x_TI.dtype), B_OR)
        low_TR = F.linear(x_TI, self.lora_A.to(x_TI.dtype))
        return super().forward(x_TI) + self.scale * F.linear(low_TR, self.lora_B.to(low_TR.dtype))


def add_lora(model: Model, config: LoraConfig, seed: int = 0) -> None:
    """Freeze the model, and give its targets changes to learn. It computes what it did before, at first."""
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    linears = linear_layers(model)
    for target in config.targets:
        if not any(_ends(name, target) for name in linears):
            known = sorted({name.rpartition(".")[2] for name in linears})
            raise ModelError(f"lora: no layer of {model.config.name} is called {target!r}; there are {known}")
    for name, linear in linears.items():
        if _is_target(name, config.targets):
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, LoraLinear(linear, config, generator))


def _is_target(name: str, targets: tuple[str, ...]) -> bool:
    if not targets:
        return name.startswith(PLACES[0])
    return any(_ends(name, target) for target in targets)


def _ends(name: str, target: str) -> bool:
    return f".{name}".endswith(f".{target}")


def merged(name: str, weight: Tensor, changes: Mapping[str, Tensor], scale: float) -> Tensor:
    """The weight of that name with its change added, if it has one."""
    stem, _, leaf = name.rpartition(".")
    if leaf != "weight" or f"{stem}.{A}" not in changes:
        return weight
    change_OI = changes[f"{stem}.{B}"] @ changes[f"{stem}.{A}"]
    return weight.to(change_OI.dtype) + scale * change_OI.to(weight.device)


def save_adapter(model: Model, changes: Mapping[str, Tensor], config: LoraConfig, folder: Path) -> None:
    """The changes alone, under the names of the checkpoint they belong to, spelled as PEFT spells them."""
    tensors = dict(_adapter_tensors(model, changes))
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / ADAPTER, {"format": "pt"})
    modules = sorted({key.removeprefix(PREFIX).partition(f".{A}")[0] for key in tensors if A in key})
    settings = {
        "peft_type": "LORA",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "target_modules": modules,
        "bias": "none",
        "lora_dropout": 0.0,
        "base_model_name_or_path": str(model.source.folder) if model.source else model.config.name,
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _adapter_tensors(model: Model, changes: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    dialect = model.source.dialect if model.source else default_dialect(model.config)
    for name, change in changes.items():
        stem, _, leaf = name.rpartition(".")
        for stored in dialect.stored(f"{stem}.weight", model.config):
            # A part of a weight's rows is the same part of B's.
            part = stored.part_of(change) if leaf == B else change
            yield f"{PREFIX}{stored.name.removesuffix('.weight')}.{leaf}.weight", part.cpu().clone()
