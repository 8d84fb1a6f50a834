"""How sequences of unequal length lie one after another in a batch of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

import torch
from torch import Tensor

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Chunks:
    """A packed batch cut into chunks of equal length, each sequence starting a chunk of its own.

    Shapes: C chunks, L tokens per chunk, T tokens, S sequences.
    """

    tokens_CL: Tensor  # packed index of each token; 0 where a chunk is only partly filled
    valid_CL: Tensor
    place_T: Tensor  # where each packed token stands in the flattened C*L layout
    first_S: tuple[int, ...]  # each sequence's first chunk
    counts_S: tuple[int, ...]  # each sequence's number of chunks


@dataclass(frozen=True)
class Packing:
    """Lengths of the sequences in a packed batch, and the marks at which their state is asked for.

    A mark (sequence, n) asks for the state after the first n of that sequence's tokens in this batch. Built once
    per batch and shared by all layers; what the ops derive from it is computed once.
    """

    lengths: tuple[int, ...]
    marks: tuple[tuple[int, int], ...] = ()
    device: torch.device = CPU

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 0:
            raise ValueError(f"a packed batch needs sequences of non-negative length, got {self.lengths}")
        for sequence, count in self.marks:
            if not (0 <= sequence < len(self.lengths) and 0 <= count <= self.lengths[sequence]):
                raise ValueError(f"mark {(sequence, count)} lies outside the sequences of lengths {self.lengths}")

    @property
    def sequences(self) -> int:
        return len(self.lengths)

    @cached_property
    def tokens(self) -> int:
        return sum(self.lengths)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Packed index of each sequence's first token, and the total at the end."""
        return (0, *accumulate(self.lengths))

    def chunks(self, length: int) -> Chunks:
        return _chunks(self, length)

    def windows(self, carried: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Index tables for a causal window over [carried rows of state | tokens] of each sequence.

        Rows 0 … S·carried-1 of the source are the states, the tokens follow. Returns the source row of each row of
        the padded layout, the padded row of each token, and the padded rows that are the final and marked states.
        """
        return _windows(self, carried)


# Tables are shared by whoever packs alike: ordinary tensors even when made inside inference mode, since a training step
# that comes later could not use others.
@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _chunks(packing: Packing, length: int) -> Chunks:
    counts = tuple(-(-n // length) for n in packing.lengths)
    first = (0, *accumulate(counts))
    chunks = first[-1]
    sequence_T = torch.repeat_interleave(torch.arange(packing.sequences), torch.tensor(packing.lengths))
    starts_S = torch.tensor(packing.starts[:-1])
    offset_T = torch.arange(packing.tokens) - starts_S[sequence_T]
    place_T = torch.tensor(first[:-1])[sequence_T] * length + offset_T
    tokens = torch.zeros(chunks * length, dtype=torch.long)
    valid = torch.zeros(chunks * length, dtype=torch.bool)
    tokens[place_T] = torch.arange(packing.tokens)
    valid[place_T] = True
    return Chunks(
        tokens_CL=tokens.view(chunks, length).to(packing.device),
        valid_CL=valid.view(chunks, length).to(packing.device),
        place_T=place_T.to(packing.device),
        first_S=first[:-1],
        counts_S=counts,
    )


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _windows(packing: Packing, carried: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    states = packing.sequences * carried
    source: list[Tensor] = []
    place: list[Tensor] = []
    for sequence, (start, length) in enumerate(zip(packing.starts, packing.lengths, strict=False)):
        source.append(torch.arange(sequence * carried, (sequence + 1) * carried))
        source.append(torch.arange(states + start, states + start + length))
        place.append(torch.arange(length) + start + (sequence + 1) * carried)

    def state_rows(ends: list[tuple[int, int]]) -> Tensor:
        rows = [[packing.starts[s] + s * carried + n + k for k in range(carried)] for s, n in ends]
        return torch.tensor(rows, dtype=torch.long).view(len(ends), carried).to(packing.device)

    return (
        torch.cat(source).to(packing.device),
        torch.cat(place).to(packing.device),
        state_rows(list(enumerate(packing.lengths))),
        state_rows(list(packing.marks)),
    )
