"""Where the sequences of a packed batch lie, as kernels read it: made once per batch and shared by all layers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from holotron.ops.packing import Packing


@lru_cache(maxsize=8)
def filled_sequences(packing: Packing, block_t: int) -> Tensor:
    """A row (sequence, its first token, the token after its last, its first block) per sequence that has tokens.

    Longest first. Blocks are those of `token_blocks`.
    """
    lengths_S, starts_S = np.array(packing.lengths), np.array(packing.starts[:-1])
    blocks_S = -(-lengths_S // block_t)
    first_S = blocks_S.cumsum() - blocks_S
    order = np.argsort(-lengths_S, kind="stable")
    order = order[lengths_S[order] > 0]
    ends_S = starts_S + lengths_S
    return to_device(np.stack([order, starts_S[order], ends_S[order], first_S[order]], axis=1), packing.device)


@lru_cache(maxsize=8)
def token_blocks(packing: Packing, block_t: int) -> Tensor:
    """A row (sequence, its first token, its length, place of the block in it) per block; none spans two sequences."""
    lengths_S = np.array(packing.lengths)
    counts_S = -(-lengths_S // block_t)
    sequence_O = np.repeat(np.arange(len(lengths_S)), counts_S)
    offset_O = (np.arange(len(sequence_O)) - (counts_S.cumsum() - counts_S)[sequence_O]) * block_t
    starts_O = np.array(packing.starts[:-1])[sequence_O]
    return to_device(np.stack([sequence_O, starts_O, lengths_S[sequence_O], offset_O], axis=1), packing.device)


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """A table of int32 on the device, by one copy that the host does not wait for."""
    table = torch.from_numpy(values.astype(np.int32))
    return table.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else table
