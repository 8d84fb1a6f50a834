"""The clipped policy gradient over drawn tokens, and what is told about it.

Shapes: N drawn tokens, A answers: the tokens of one turn.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holotron.train.rl.config import ObjectiveConfig


@dataclass(frozen=True)
class DrawnTokens:
    """What is known of each drawn token besides the model's present opinion of it.

    engine: its log-probability when it was drawn; old: the trainer's before this iteration's updates. weight: of its
    term in the sum that is minimised, 0 for padding. answer: the number of the turn that it is of.
    """

    advantage_N: Tensor
    engine_N: Tensor
    old_N: Tensor
    weight_N: Tensor
    answer_N: Tensor
    reference_N: Tensor | None = None


@dataclass(frozen=True)
class PolicyLoss:
    """The loss of each token; ratio and whether it was clipped, importance weight and divergence, without gradients."""

    loss_N: Tensor
    ratio_N: Tensor
    clipped_N: Tensor
    importance_N: Tensor
    kl_N: Tensor


def policy_loss(new_N: Tensor, drawn: DrawnTokens, config: ObjectiveConfig) -> PolicyLoss:
    """new: log-probabilities under the sampling distribution, with gradients. Nothing here is weighted or summed."""
    capped = config.importance_cap > 0
    log_ratio_N = new_N - (drawn.old_N if capped else drawn.engine_N)
    if config.ratio == "sequence":
        log_ratio_N = mean_by_answer(log_ratio_N, drawn.answer_N, drawn.weight_N > 0)
    ratio_N = log_ratio_N.exp()
    clipped_N = ratio_N.clamp(1 - config.clip_low, 1 + config.clip_high)
    gain_N = torch.minimum(ratio_N * drawn.advantage_N, clipped_N * drawn.advantage_N)
    importance_N = torch.ones_like(gain_N)
    if capped:
        importance_N = (drawn.old_N - drawn.engine_N).exp().clamp_max(config.importance_cap)
    loss_N, kl_N = -importance_N * gain_N, torch.zeros_like(gain_N)
    if config.kl and drawn.reference_N is not None:
        kl_N = reference_kl(new_N, drawn.reference_N)
        loss_N = loss_N + config.kl * kl_N
    bound_N = gain_N.detach() < (ratio_N * drawn.advantage_N).detach()
    return PolicyLoss(loss_N, ratio_N.detach(), bound_N, importance_N, kl_N.detach())


def mean_by_answer(values_N: Tensor, answer_N: Tensor, counts_N: Tensor) -> Tensor:
    """At each token the mean over the tokens of its answer that count."""
    counted_N = counts_N.to(values_N.dtype)
    # There are never more answers than tokens: asking the device how many would wait for it.
    sums_A = torch.zeros_like(values_N).index_add(0, answer_N, values_N * counted_N)
    totals_A = torch.zeros_like(values_N).index_add(0, answer_N, counted_N)
    return (sums_A / totals_A.clamp_min(1))[answer_N]


def reference_kl(new_N: Tensor, reference_N: Tensor) -> Tensor:
    """An estimate of the divergence from the reference at each token: never negative, right in the mean."""
    behind_N = reference_N - new_N
    return behind_N.exp() - behind_N - 1
