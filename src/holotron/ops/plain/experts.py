"""Mixture of experts: choosing experts for each token and running them.

Shapes: T tokens, E experts, K experts per token, D width the experts see, F their inner width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def route(
    logits_TE: Tensor,
    correction_E: Tensor,
    experts_per_token: int,
    *,
    groups: int = 1,
    groups_per_token: int = 1,
    normalize: bool = True,
    scaling: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Chosen experts and their weights. The correction moves the choice only, never the weights."""
    scores_TE = logits_TE.sigmoid()
    choice_TE = scores_TE + correction_E
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


def run_experts(x_TD: Tensor, chosen_TK: Tensor, weights_TK: Tensor, up_EFD: Tensor, down_EDF: Tensor) -> Tensor:
    """Weighted sum over each token's experts of down · relu(up · x)²."""
    per_token = chosen_TK.shape[1]
    # Sorted by expert, so that each expert sees its tokens as one matrix.
    order = chosen_TK.flatten().argsort(stable=True)
    token = order // per_token
    counts: list[int] = chosen_TK.flatten().bincount(minlength=up_EFD.shape[0]).tolist()
    outputs = [
        F.linear(F.relu(F.linear(x_ND, up_FD)).square(), down_DF)
        for x_ND, up_FD, down_DF in zip(x_TD[token].split(counts), up_EFD, down_EDF, strict=True)
        if len(x_ND)
    ]
    weighted = torch.cat(outputs) * weights_TK.flatten()[order, None]
    return torch.zeros_like(weighted[: len(x_TD)]).index_add(0, token, weighted).to(x_TD.dtype)
