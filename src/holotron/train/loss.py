"""What is minimised: cross entropy on what the policy must say, forgiving near misses of a point.

Shapes: N learned tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from holotron.actions.coordinates import SCALE
from holotron.model.text.policy_tokenizer import AXES, coordinate_token, has_pieces
from holotron.model.text.tokenizer import Tokenizer

# Logits that are there at once, in values: 1 GiB in float32, and as much again for their gradient.
MOST_LOGITS = 2**28


@dataclass(frozen=True)
class Coordinates:
    """Where the coordinates lie in the vocabulary: nowhere in that of a model which writes them as digits.

    sigma: the standard deviation of a coordinate's soft target, in thousandths; 0 makes it a hard one.
    """

    first_ids: tuple[int, ...] = ()
    sigma: float = 3.0

    @classmethod
    def of(cls, tokenizer: Tokenizer, sigma: float = 3.0) -> Coordinates:
        firsts: list[int] = []
        if not has_pieces(tokenizer):
            return cls()
        for axis in AXES:
            ids = [tokenizer.id_of(coordinate_token(axis, value)) for value in range(SCALE + 1)]
            assert ids == list(range(ids[0], ids[0] + SCALE + 1)), "coordinates must be neighbours in the vocabulary"
            firsts.append(ids[0])
        return cls(tuple(firsts), sigma)


LossesOfLogits = Callable[[Tensor, Tensor, Coordinates], Tensor]


def losses_of_hidden(
    head: nn.Linear, hidden_ND: Tensor, targets_N: Tensor, coordinates: Coordinates, losses: LossesOfLogits
) -> Tensor:
    """The loss of each learned token from what the head is given; a large vocabulary's logits are made in parts.

    Parts are computed again for the gradient, so that never more than one of them is there.
    """
    rows = max(1, MOST_LOGITS // head.out_features)
    if len(hidden_ND) <= rows:
        return losses(head(hidden_ND), targets_N, coordinates)

    def part(hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
        return losses(head(hidden_ND), targets_N, coordinates)

    parts = [
        checkpoint(part, hidden, targets, use_reentrant=False, preserve_rng_state=False)
        for hidden, targets in zip(hidden_ND.split(rows), targets_N.split(rows), strict=True)
    ]
    return torch.cat(parts)


def losses_of_learned(logits_NV: Tensor, targets_N: Tensor, coordinates: Coordinates) -> Tensor:
    """The loss of each learned token.

    A coordinate's target is a narrow bell over its neighbours: one pixel beside the middle of a button is not as wrong
    as the other end of the screen. What is left of the bell's own entropy is taken off, so that nothing remains to be
    learned at 0.
    """
    wide = torch.promote_types(logits_NV.dtype, torch.float32)
    log_NV = torch.log_softmax(logits_NV.to(wide), dim=-1)
    loss_N = -log_NV.gather(1, targets_N[:, None]).squeeze(1)
    if coordinates.sigma <= 0:
        return loss_N
    values = torch.arange(SCALE + 1, device=logits_NV.device)
    for first in coordinates.first_ids:
        value_N = targets_N - first
        is_coordinate_N = (value_N >= 0) & (value_N <= SCALE)
        bell = torch.exp(-((values[None, :] - value_N[:, None]) ** 2) / (2 * coordinates.sigma**2))
        bell = bell / bell.sum(1, keepdim=True).clamp_min(1e-9)
        soft_N = (torch.special.xlogy(bell, bell) - bell * log_NV[:, first : first + SCALE + 1]).sum(1)
        loss_N = torch.where(is_coordinate_N, soft_N, loss_N)
    return loss_N
