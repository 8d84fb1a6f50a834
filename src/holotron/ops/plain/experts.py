"""Mixture of experts: choosing experts for each token and running them.

Shapes: T tokens, E experts, K experts per token, D width the experts see, F their inner width.
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.plain.norm import relu_squared

Scoring = Literal["sigmoid", "softmax"]
Activation = Literal["relu_squared", "silu"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu_squared": relu_squared, "silu": F.silu}


def route(
    logits_TE: Tensor,
    correction_E: Tensor | None,
    experts_per_token: int,
    *,
    scoring: Scoring = "sigmoid",
    groups: int = 1,
    groups_per_token: int = 1,
    normalize: bool = True,
    scaling: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Chosen experts, the best first, and their weights. The correction moves the choice only, never the weights."""
    scores_TE = logits_TE.sigmoid() if scoring == "sigmoid" else logits_TE.softmax(-1)
    choice_TE = scores_TE if correction_E is None else scores_TE + correction_E
    if groups > 1:
        # A group is worth its two best experts; experts outside the best groups are out of the running.
        choice_TGE = choice_TE.unflatten(-1, (groups, -1))
        worth_TG = choice_TGE.topk(min(2, choice_TGE.shape[-1]), dim=-1).values.sum(-1)
        best = worth_TG.topk(groups_per_token, dim=-1).indices
        kept_TG = torch.zeros_like(worth_TG, dtype=torch.bool).scatter(-1, best, True)
        choice_TE = choice_TGE.masked_fill(~kept_TG[..., None], float("-inf")).flatten(-2)
    chosen_TK = choice_TE.topk(experts_per_token, dim=-1).indices
    weights_TK = scores_TE.gather(-1, chosen_TK)
    if normalize:
        weights_TK = weights_TK / (weights_TK.sum(-1, keepdim=True) + 1e-20)
    return chosen_TK, weights_TK * scaling


def run_experts(
    x_TD: Tensor,
    chosen_TK: Tensor,
    weights_TK: Tensor,
    up_EFD: Tensor,
    down_EDF: Tensor,
    gate_EFD: Tensor | None = None,
    *,
    activation: Activation = "relu_squared",
) -> Tensor:
    """Weighted sum over each token's experts of down · activation(up · x).

    With a gate, an expert is down · (activation(gate · x) · up · x).
    """
    activate = ACTIVATIONS[activation]

    def expert(index: int, x_ND: Tensor) -> Tensor:
        up_NF = F.linear(x_ND, up_EFD[index])
        inner_NF = activate(up_NF) if gate_EFD is None else activate(F.linear(x_ND, gate_EFD[index])) * up_NF
        return F.linear(inner_NF, down_EDF[index])

    return run_each_expert(x_TD, chosen_TK, weights_TK, len(up_EFD), expert)


def run_each_expert(
    x_TD: Tensor, chosen_TK: Tensor, weights_TK: Tensor, experts: int, expert: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """Weighted sum over each token's experts of expert(number, x)."""
    # Sorted by expert, so that each expert sees its tokens as one matrix.
    order = chosen_TK.flatten().argsort(stable=True)
    token = order // chosen_TK.shape[1]
    counts: list[int] = chosen_TK.flatten().bincount(minlength=experts).tolist()
    pieces = enumerate(x_TD[token].split(counts))
    outputs = [x_TD[:0], *(expert(index, x_ND) for index, x_ND in pieces if len(x_ND))]
    weighted = torch.cat(outputs) * weights_TK.flatten()[order, None]
    return torch.zeros_like(weighted[: len(x_TD)]).index_add(0, token, weighted).to(x_TD.dtype)
