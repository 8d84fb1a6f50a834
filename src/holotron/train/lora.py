"""Low-rank changes to frozen weights (LoRA): a large policy learns with the optimiser of a small one.

Shapes: T tokens, I inputs and O outputs of a linear layer, R rank, E experts, N tokens of one expert.
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

from holotron import ops
from holotron.model.checkpoint.adapter import (
    ADAPTER,
    ADAPTER_CONFIG,
    PLACES,
    PREFIX,
    WRAPPED,
    A,
    B,
    expert_weights,
    flat_experts,
    linear_layers,
    read_adapter,
)
from holotron.model.checkpoint.names import module_dialect
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import ModelConfig
from holotron.model.errors import ModelError
from holotron.model.loading import load
from holotron.model.mixers import Experts
from holotron.model.model import Model
from holotron.ops import low_rank_linear


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank changes instead of whole weights; rank 0 trains everything.

    A target is the end of a linear layer's name: "in_proj", "layers.3.mixer.q_proj", "attn.qkv" in the tower,
    "projector.up". "experts.up_proj" means the routed experts' weights of that name. None at all means every linear
    layer inside the decoder's layers, but for those that PEFT refuses: out_proj of Mamba in a model of text alone.
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

    def __init__(self, base: nn.Linear, config: LoraConfig) -> None:
        nn.Module.__init__(self)  # not Linear's: nothing is to be drawn that is thrown away again
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.scale = config.scale
        # float32, also where the base is not: small steps would be lost in 16 bits.
        self.lora_A = nn.Parameter(torch.empty(config.rank, base.in_features, device=base.weight.device))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, config.rank, device=base.weight.device))

    def forward(self, x_TI: Tensor) -> Tensor:
        if x_TI.is_cuda and x_TI.dim() == 2 and self.weight.dtype.itemsize == 2:
            x_TI, B_OR = x_TI.to(self.weight.dtype), (self.scale * self.lora_B).to(self.weight.dtype)
            return low_rank_linear(x_TI, self.weight, self.bias, self.lora_A.to(x_TI.dtype), B_OR)
        low_TR = F.linear(x_TI, self.lora_A.to(x_TI.dtype))
        return super().forward(x_TI) + self.scale * F.linear(low_TR, self.lora_B.to(low_TR.dtype))


class LoraExperts(Experts):
    """Routed experts whose weights have changes of their own, an A and a B for each expert."""

    def __init__(self, base: Experts, targets: list[str], config: LoraConfig) -> None:
        nn.Module.__init__(self)
        self.up_proj, self.gate_up_proj, self.down_proj = base.up_proj, base.gate_up_proj, base.down_proj
        self.scale = config.scale
        self.lora_A, self.lora_B = nn.ParameterDict(), nn.ParameterDict()
        for target in targets:
            weight_EOI: Tensor = getattr(base, target)
            experts, outputs, inputs = weight_EOI.shape
            self.lora_A[target] = nn.Parameter(torch.empty(experts, config.rank, inputs, device=weight_EOI.device))
            self.lora_B[target] = nn.Parameter(torch.zeros(experts, outputs, config.rank, device=weight_EOI.device))

    def forward(self, x_TD: Tensor, chosen_TK: Tensor, weights_TK: Tensor) -> Tensor:
        # Unbound once: the gradient of each expert's part would else be as large as all of them.
        changes = {
            target: (a_ERI.to(x_TD.dtype).unbind(), self.lora_B[target].to(x_TD.dtype).unbind())
            for target, a_ERI in self.lora_A.items()
        }

        def project(target: str, index: int, x_NI: Tensor) -> Tensor:
            out_NO = F.linear(x_NI, getattr(self, target)[index])
            if target not in changes:
                return out_NO
            a_RI, b_OR = (each[index] for each in changes[target])
            return out_NO + self.scale * F.linear(F.linear(x_NI, a_RI), b_OR)

        def expert(index: int, x_ND: Tensor) -> Tensor:
            if self.gate_up_proj is None:
                return project("down_proj", index, ops.relu_squared(project("up_proj", index, x_ND)))
            gate_NF, up_NF = project("gate_up_proj", index, x_ND).chunk(2, dim=-1)
            return project("down_proj", index, F.silu(gate_NF) * up_NF)

        return ops.run_each_expert(x_TD, chosen_TK, weights_TK, len(self.down_proj), expert)


def add_lora(model: Model, config: LoraConfig, seed: int = 0) -> None:
    """Freeze the model, and give its targets changes to learn. It computes what it did before, at first.

    Changes of a model without memory are drawn later, by `draw_lora`.
    """
    model.requires_grad_(False)
    linears, experts = linear_layers(model), expert_weights(model)
    for target in config.targets:
        if not any(_ends(name, target) for name in linears) and not any(_is_expert(name, target) for name in experts):
            known = sorted({name.rpartition(".")[2] for name in linears} | {_end(name) for name in experts})
            raise ModelError(f"lora: no layer of {model.config.name} is called {target!r}; there are {known}")
    for name, linear in linears.items():
        if _is_target(name, config.targets, model.config):
            model.set_submodule(name, LoraLinear(linear, config))
    changed: dict[str, list[str]] = {}
    for name in experts:
        if any(_is_expert(name, target) for target in config.targets):
            owner, _, leaf = name.rpartition(".")
            changed.setdefault(owner, []).append(leaf)
    for owner, leaves in changed.items():
        base = model.get_submodule(owner)
        assert isinstance(base, Experts)
        model.set_submodule(owner, LoraExperts(base, leaves, config))
    with torch.no_grad():
        for name, value in draw_lora(model, seed) if model.device.type != "meta" else ():
            model.get_parameter(name).copy_(value)


def all_targets(config: ModelConfig) -> tuple[str, ...]:
    """The linear layers of decoder, tower and projector, by the ends of their names."""
    with torch.device("meta"):
        model = Model(config)
    ends = {".".join(name.split(".")[-2:]) for name in linear_layers(model)}
    return tuple(sorted(end for end in ends if not end.startswith("decoder.")))


def draw_lora(model: Model, seed: int) -> Iterator[tuple[str, Tensor]]:
    """What each A begins with, by name; each B begins with zeros."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if A in name.split("."):
            bound = parameter.shape[-1] ** -0.5
            yield name, torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)


def _is_target(name: str, targets: tuple[str, ...], config: ModelConfig) -> bool:
    if not targets:
        refused = config.vision is None and name.endswith("mixer.out_proj")
        return name.startswith(PLACES[0]) and not refused
    return any(_ends(name, target) for target in targets)


def _ends(name: str, target: str) -> bool:
    return f".{name}".endswith(f".{target}")


def _is_expert(name: str, target: str) -> bool:
    """Experts are many, so they are changed only where they are named: "up_proj" alone does not mean theirs."""
    return "experts" in target.split(".") and _ends(name, target)


def _end(name: str) -> str:
    return ".".join(name.split(".")[-2:])


def merged(name: str, weight: Tensor, changes: Mapping[str, Tensor], scale: float) -> Tensor:
    """The weight of that name with its change added, if it has one."""
    a, b = (changes.get(_change_name(name, which)) for which in (A, B))
    if a is None or b is None:
        return weight
    change = b @ a
    return weight.to(change.dtype) + scale * change.to(weight.device)


def _change_name(weight: str, which: str) -> str:
    """The name of A or B of a weight: beside the weight of a linear layer, or by name among those of experts."""
    owner, _, leaf = weight.rpartition(".")
    return f"{owner}.{which}" if leaf == "weight" else f"{owner}.{which}.{leaf}"


def merge_adapter(base: str | Path, adapter: Path, folder: Path) -> None:
    """Write the checkpoint that a base with an adapter is, in the type of the base."""
    model = load(base, "cpu")
    with torch.no_grad():
        for name, change in read_adapter(model, adapter.name, adapter).items():
            weight = model.get_parameter(name if name in expert_weights(model) else f"{name}.weight")
            weight.copy_(weight.to(change.B_OR.dtype) + change.B_OR @ change.A_RI)
    save_checkpoint(model, folder)


def save_adapter(model: Model, changes: Mapping[str, Tensor], config: LoraConfig, folder: Path) -> None:
    """The changes alone, as PEFT saves them over transformers."""
    dialect, tensors = module_dialect(model.config), dict[str, Tensor]()
    modules: list[str] = []
    parameters: list[str] = []
    for layer in linear_layers(model):
        if f"{layer}.{A}" not in changes:
            continue
        for stored in dialect.stored(f"{layer}.weight", model.config):
            module = stored.name.removesuffix(".weight")
            modules.append(module)
            # A part of a weight's rows is the same part of B's.
            a_RI, b_OR = changes[f"{layer}.{A}"], stored.part_of(changes[f"{layer}.{B}"])
            tensors |= {f"{module}.{A}": a_RI, f"{module}.{B}": b_OR}
    for weight in reversed(expert_weights(model)):
        if (a_name := _change_name(weight, A)) in changes:
            stored_name = dialect.stored(weight, model.config)[0].name
            parameters.append(stored_name)
            module = stored_name.rpartition(".")[0]
            while f"{module}.{A}" in tensors:
                module += WRAPPED
            a, b = flat_experts(changes[a_name], changes[_change_name(weight, B)])
            tensors |= {f"{module}.{A}": a, f"{module}.{B}": b}
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        f"{PREFIX}{name}.weight": tensor.cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    save_file(files, folder / ADAPTER, {"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "r": config.rank,
        "lora_alpha": config.alpha,
        "target_modules": sorted(modules),
        "target_parameters": sorted(parameters) or None,
        "bias": "none",
        "lora_dropout": 0.0,
        "base_model_name_or_path": str(model.source.folder) if model.source else model.config.name,
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
