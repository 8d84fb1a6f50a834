"""How sequences lie in a batch of fixed size: what training runs, since one compiled program then serves all batches.

Everything that differs from batch to batch is a number in a table, nothing a shape.
Shapes: T tokens, S sequences, C chunks of L tokens, J conv taps before the present one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Padding is cut into pieces of so many tokens: attention within one long piece would cost more than the rest.
FILLER = 512


@dataclass(frozen=True)
class ScanTables:
    """Where the convolution and the chunks of a scan find each token."""

    same_TJ: Tensor  # whether the token j+1 places before is of the same sequence
    tokens_CL: Tensor  # the token at each place of a chunk, where there is one
    is_filled_CL: Tensor
    place_T: Tensor  # and the way back
    is_used_T: Tensor
    first_S: Tensor  # first chunk of each sequence
    counts_S: Tensor  # chunks of each sequence

    @classmethod
    def build(
        cls, lengths_S: NDArray[np.int64], *, tokens: int, sequences: int, chunk: int, chunks: int, taps: int
    ) -> Self:
        offset_T, used = offsets(lengths_S, tokens), int(lengths_S.sum())
        counts_S = -(-lengths_S // chunk)
        first_S = counts_S.cumsum() - counts_S
        place_T = np.zeros(tokens, np.int64)
        place_T[:used] = np.repeat(first_S, lengths_S) * chunk + offset_T[:used]
        tokens_CL = np.zeros(chunks * chunk, np.int64)
        is_filled_CL = np.zeros(chunks * chunk, np.bool_)
        tokens_CL[place_T[:used]] = np.arange(used)
        is_filled_CL[place_T[:used]] = True
        return cls(
            same_TJ=torch.from_numpy(offset_T[:, None] > np.arange(taps)[None, :]),
            tokens_CL=torch.from_numpy(tokens_CL.reshape(chunks, chunk)),
            is_filled_CL=torch.from_numpy(is_filled_CL.reshape(chunks, chunk)),
            place_T=torch.from_numpy(place_T),
            is_used_T=torch.from_numpy(np.arange(tokens) < used),
            first_S=_padded(first_S, sequences),
            counts_S=_padded(counts_S, sequences),
        )


@dataclass(frozen=True)
class FixedPacking:
    """bounds_S: the first token of each sequence, and the end. `scan` is for models with Mamba layers.

    `longest`, the most tokens between two bounds, holds for every batch: another number would be another program; as
    does `each`, the tokens of every sequence where all have as many, else 0. One that is alone in its batch is as long
    as that, padding and all.
    """

    bounds_S: Tensor
    longest: int
    scan: ScanTables | None = None
    each: int = 0

    @classmethod
    def build(
        cls,
        lengths_S: NDArray[np.int64],
        *,
        tokens: int,
        sequences: int,
        longest: int,
        scan: ScanTables | None = None,
        each: int = 0,
    ) -> Self:
        """At most `sequences` of at most `longest` tokens, and padding up to `tokens`."""
        used = int(lengths_S.sum())
        bounds = [0, *lengths_S.cumsum().tolist(), *range(used + FILLER, tokens, FILLER), tokens]
        bounds += [tokens] * (sequences + tokens // FILLER + 2 - len(bounds))
        return cls(
            torch.tensor(bounds, dtype=torch.int32), max(FILLER, longest), scan, tokens if sequences == 1 else each
        )


def offsets(lengths_S: NDArray[np.int64], tokens: int) -> NDArray[np.int64]:
    """Each token's place in its sequence; 0 in the padding."""
    used = int(lengths_S.sum())
    offset_T = np.zeros(tokens, np.int64)
    offset_T[:used] = np.arange(used) - np.repeat(lengths_S.cumsum() - lengths_S, lengths_S)
    return offset_T


def _padded(values: NDArray[np.int64], length: int) -> Tensor:
    whole = np.zeros(length, np.int32)
    whole[: len(values)] = values
    return torch.from_numpy(whole)
