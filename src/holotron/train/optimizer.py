"""AdamW and Muon, the schedule of their step size, and the average of the weights that is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from holotron.train.parallel import joined, local, sharded

# The quintic iteration that brings singular values close to 1 in five steps, in 16 bits.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ROUNDS = 5
# Parts of the names of matrices at the edges of a network, which Muon is not for.
EDGES = ("embeddings", "lm_head", "patch_embed", "ocr_head")


@dataclass(frozen=True)
class OptimizerConfig:
    """`rate` is the peak of the schedule, for both kinds: Muon's updates are scaled to AdamW's size.

    warm-up, then constant, then a linear decay over the last `decay` of all steps, to `floor` of the peak.
    """

    kind: Literal["adamw", "muon"] = "adamw"
    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    momentum: float = 0.95
    weight_decay: float = 0.05
    clip: float = 1.0
    warmup: int = 300
    decay: float = 0.3
    floor: float = 0.02
    average: float = 0.999

    def __post_init__(self) -> None:
        if self.kind not in ("adamw", "muon"):
            raise ValueError(f"optimizer kind is {self.kind!r}; known are 'adamw' and 'muon'")
        if not self.rate > 0 or not 0 <= self.decay <= 1 or not 0 <= self.average < 1:
            raise ValueError(f"rate {self.rate}, decay {self.decay} or average {self.average} is out of range")

    def factor(self, step: float, steps: int) -> float:
        """What the peak rate is multiplied with at a step, counted from 0."""
        warm = min(1.0, (step + 1) / max(1, self.warmup))
        left = (steps - step) / max(1.0, self.decay * steps)
        return warm * (self.floor + (1 - self.floor) * min(1.0, max(0.0, left)))


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that learn; the others stay as they were read."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def make_optimizers(model: nn.Module, config: OptimizerConfig) -> list[torch.optim.Optimizer]:
    """One for the matrices inside the network and one for everything else, or AdamW for all."""
    matrices, others, plain = _split(model)
    muon = config.kind == "muon"
    groups = [
        {"params": others if muon else matrices + others, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    fused = all(p.is_cuda for p in model.parameters())
    adamw = torch.optim.AdamW(groups, config.rate, config.betas, eps=1e-8, fused=fused)
    return [Muon(matrices, config.rate, config.momentum, config.weight_decay), adamw] if muon else [adamw]


def _split(model: nn.Module) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Matrices inside the network, matrices at its edges, and vectors, which are not decayed."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    plain: list[Tensor] = []
    for name, parameter in trained(model).items():
        if parameter.dim() < 2 or name.endswith(("prefix", "position_table")) or "conv1d" in name:
            plain.append(parameter)
        elif parameter.dim() == 2 and not any(part in name for part in EDGES):
            matrices.append(parameter)
        else:
            others.append(parameter)
    return matrices, others, plain


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal. Matrices of one shape are done together, as a batch.

    An update needs the whole matrix: of sharded ones, every rank gathers them all, and keeps its part of the result.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                gradients = [local(p.grad) for p in parameters if p.grad is not None]
                moving = [local(self._moving(p)) for p in parameters]
                torch._foreach_lerp_(moving, gradients, 1 - group["momentum"])
                ahead = torch._foreach_lerp(gradients, moving, group["momentum"])
                whole = torch.stack([joined(part, p) for part, p in zip(ahead, parameters, strict=True)])
                updates = orthogonal(whole).to(parameters[0].dtype).unbind()
                scale = 0.2 * math.sqrt(max(shape))
                held = [local(p) for p in parameters]
                torch._foreach_mul_(held, 1 - group["lr"] * group["weight_decay"])
                parts = [local(sharded(update, p)) for update, p in zip(updates, parameters, strict=True)]
                torch._foreach_add_(held, parts, alpha=-group["lr"] * scale)

    def _moving(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if "moving" not in state:
            state["moving"] = torch.zeros_like(parameter)
        moving: Tensor = state["moving"]
        return moving


def orthogonal(x_BMN: Tensor) -> Tensor:
    """Each matrix with its singular values brought close to 1."""
    a, b, c = NEWTON_SCHULZ
    dtype = torch.bfloat16 if x_BMN.is_cuda else x_BMN.dtype
    tall = x_BMN.shape[1] > x_BMN.shape[2]
    x = (x_BMN.transpose(1, 2) if tall else x_BMN).to(dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * square @ square) @ x
    out: Tensor = x.transpose(1, 2) if tall else x
    return out


class Average:
    """The exponential average of the weights that a model learns: what is evaluated and shipped."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        # Without a memory it is the weights themselves.
        self.weights = {name: p.detach().clone().float() if decay else p.detach() for name, p in trained(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        if not self.decay:
            return
        # Early on, a short memory: the first weights are worth nothing.
        decay = min(self.decay, (1 + step) / (10 + step))
        parameters = [local(p).detach().float() for p in trained(model).values()]
        torch._foreach_lerp_([local(weights) for weights in self.weights.values()], parameters, 1 - decay)
