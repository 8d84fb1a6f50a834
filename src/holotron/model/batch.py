"""One forward pass over several sessions: which tokens are whose, and where their memory lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from holotron.model.config import ModelConfig
from holotron.ops import Packing


@dataclass(frozen=True)
class Batch:
    """New tokens of S sessions, packed one after another.

    Without memory (training, scoring) only `packing` and `positions_T` matter. With a Memory, slots_S says where each
    session's state lies, mark_slots_Q where the states at the packing's marks go, page_table_SM which pages hold its
    keys and values, places_T where the new ones are written and kv_lengths_S how many entries there are with them.
    """

    packing: Packing
    positions_T: Tensor
    slots_S: Tensor | None = None
    mark_slots_Q: Tensor | None = None
    page_table_SM: Tensor | None = None
    places_T: Tensor | None = None
    kv_lengths_S: Tensor | None = None

    @classmethod
    def fresh(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> Self:
        """Sequences that start from nothing and leave nothing behind."""
        packing = Packing(tuple(lengths), device=torch.device(device))
        return cls(packing, _positions(packing, (0,) * len(lengths)))

    @classmethod
    def continuing(
        cls,
        lengths: Sequence[int],
        *,
        past: Sequence[int],
        slots: Sequence[int],
        pages: Sequence[Sequence[int]],
        page_size: int,
        marks: Sequence[tuple[int, int]] = (),
        mark_slots: Sequence[int] = (),
        device: torch.device | str = "cpu",
    ) -> Self:
        """Sequences that continue sessions with `past` tokens each; `pages` must have room for the new ones."""
        packing = Packing(tuple(lengths), tuple(marks), torch.device(device))
        if not (len(past) == len(slots) == len(pages) == len(lengths)) or len(marks) != len(mark_slots):
            raise ValueError("lengths, past, slots and pages must have one entry per session, mark_slots one per mark")
        places: list[int] = []
        for length, before, table in zip(lengths, past, pages, strict=True):
            if before + length > len(table) * page_size:
                raise ValueError(f"{before + length} tokens do not fit {len(table)} pages of {page_size}")
            places += [table[i // page_size] * page_size + i % page_size for i in range(before, before + length)]
        widest = max(len(table) for table in pages)
        padded = [[*table, *[0] * (widest - len(table))] for table in pages]

        def tensor(values: object) -> Tensor:
            return torch.tensor(values, dtype=torch.long, device=device)

        return cls(
            packing,
            _positions(packing, past),
            slots_S=tensor(list(slots)),
            mark_slots_Q=tensor(list(mark_slots)),
            page_table_SM=tensor(padded),
            places_T=tensor(places),
            kv_lengths_S=tensor([before + length for before, length in zip(past, lengths, strict=True)]),
        )


def _positions(packing: Packing, past: Sequence[int]) -> Tensor:
    counts = [torch.arange(before, before + n) for before, n in zip(past, packing.lengths, strict=True)]
    return torch.cat(counts).to(packing.device)


@dataclass(frozen=True)
class Memory:
    """What sessions remember: slots of SSM and convolution state, and pages of keys and values.

    A slot holds all layers side by side, so that copying a session's state is one copy. Shapes: V slots, M Mamba
    layers, A attention layers, N pages, Z tokens per page, K key/value heads.
    """

    ssm_VMHPN: Tensor
    conv_VMCJ: Tensor
    keys_ANKZD: Tensor
    values_ANKZD: Tensor

    @classmethod
    def allocate(
        cls,
        config: ModelConfig,
        *,
        slots: int,
        pages: int,
        page_size: int = 16,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        state_dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Zeroed memory for so many sessions and pages; states in 32 bits unless told otherwise."""
        ssm: tuple[int, ...] = (slots, 0, 0, 0, 0)
        conv: tuple[int, ...] = (slots, 0, 0, 0)
        kv: tuple[int, ...] = (0, pages, 0, page_size, 0)
        if m := config.mamba:
            ssm = (slots, config.count("M"), m.heads, m.head_dim, m.state_size)
            conv = (slots, config.count("M"), m.conv_channels, m.conv_kernel - 1)
        if a := config.attention:
            kv = (config.count("*"), pages, a.kv_heads, page_size, a.head_dim)
        return cls(
            torch.zeros(ssm, device=device, dtype=state_dtype),
            torch.zeros(conv, device=device, dtype=dtype),
            torch.zeros(kv, device=device, dtype=dtype),
            torch.zeros(kv, device=device, dtype=dtype),
        )

    @property
    def page_size(self) -> int:
        return self.keys_ANKZD.shape[3]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (self.ssm_VMHPN, self.conv_VMCJ, self.keys_ANKZD, self.values_ANKZD))
