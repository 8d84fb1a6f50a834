"""How sequences of unequal length lie one after another in a batch of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Packing:
    """Lengths of the sequences in a packed batch.

    Built once per batch and shared by all layers; what the ops derive from it is computed once.
    """

    lengths: tuple[int, ...]
    device: torch.device = CPU

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 0:
            raise ValueError(f"a packed batch needs sequences of non-negative length, got {self.lengths}")

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
