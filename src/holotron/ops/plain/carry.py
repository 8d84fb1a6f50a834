"""The recurrence between chunks, which is all that is sequential in a scan.

Of each sequence's chunks in turn: entering = what the chunk before left, nothing for the first;
left = entering · kept + added.   Shapes: S sequences, C chunks, H heads, P head dim, N state size.
"""

from __future__ import annotations

import torch
from torch import Tensor


def carry(kept_CH: Tensor, added_CHPN: Tensor, first_S: Tensor, counts_S: Tensor) -> Tensor:
    """The state that enters each chunk. Chunks that belong to no sequence get zeros."""
    entering = [torch.zeros_like(added_CHPN[0])] * len(added_CHPN)
    for first, count in zip(first_S.tolist(), counts_S.tolist(), strict=True):
        state_HPN = torch.zeros_like(added_CHPN[0])
        for chunk in range(first, first + count):
            entering[chunk] = state_HPN
            state_HPN = state_HPN * kept_CH[chunk, :, None, None] + added_CHPN[chunk]
    return torch.stack(entering)
