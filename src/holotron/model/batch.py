"""One forward pass over several sessions: which tokens are whose, and where their memory lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from holotron.model.config import ModelConfig
from holotron.ops import FixedPacking, Packing

ALIGNED = 64  # bytes


@dataclass(frozen=True)
class Batch:
    """New tokens of S sessions: first `steps` sessions with one token each, then the packed pieces of the others.

    The single tokens go through the ops made for one step, the pieces through those for whole sequences; matrix
    products see them all together. Without memory (training, scoring) only `packing` and `positions_T` matter; training
    packs into arrays of fixed size. With a Memory, slots_S says where each session's state lies, page_table_SM which
    pages hold its keys and values, places_T where the new ones are written and kv_lengths_S how many entries there are
    with them; piece_lengths says the latter of the pieces again, on the host. Positions are [3, T] in models where the
    tokens of an image lie in rows and columns (mrope.py).
    """

    packing: Packing | FixedPacking | None
    positions_T: Tensor
    steps: int = 0
    slots_S: Tensor | None = None
    page_table_SM: Tensor | None = None
    places_T: Tensor | None = None
    kv_lengths_S: Tensor | None = None
    piece_lengths: tuple[int, ...] = ()

    @classmethod
    def fresh(cls, lengths: Sequence[int], device: torch.device | str = "cpu") -> Self:
        """Sequences that start from nothing and leave nothing behind."""
        packing = Packing(tuple(lengths), device=torch.device(device))
        return cls(packing, torch.cat([torch.arange(length) for length in lengths]).to(packing.device))


@dataclass(frozen=True)
class Memory:
    """What sessions remember: slots of SSM and convolution state, and pages of keys and values.

    A slot holds all layers side by side, so that copying a session's state is one copy. Shapes: V slots, M Mamba
    layers, A attention layers, N pages, K key/value heads, Z tokens per page.
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
        kv_dtype: torch.dtype | None = None,
    ) -> Self:
        """Zeroed memory for so many sessions and pages; 32-bit states, KV as the weights unless told otherwise."""
        ssm: tuple[int, ...] = (slots, 0, 0, 0, 0)
        conv: tuple[int, ...] = (slots, 0, 0, 0)
        kv: tuple[int, ...] = (0, pages, 0, page_size, 0)
        if m := config.mamba:
            ssm = (slots, config.count("M"), m.heads, m.head_dim, m.state_size)
            conv = (slots, config.count("M"), m.conv_channels, m.conv_kernel - 1)
        if a := config.attention:
            kv = (config.count("*"), pages, a.kv_heads, page_size, a.head_dim)
        shapes = (ssm, state_dtype), (conv, dtype), (kv, kv_dtype or dtype), (kv, kv_dtype or dtype)
        return cls(*(_zeros(shape, kind, torch.device(device)) for shape, kind in shapes))

    @property
    def slot_bytes(self) -> int:
        """What one session's state takes."""
        return (self.ssm_VMHPN.nbytes + self.conv_VMCJ.nbytes) // self.ssm_VMHPN.shape[0]

    @property
    def page_bytes(self) -> int:
        """What one page takes in all layers."""
        return (self.keys_ANKZD.nbytes + self.values_ANKZD.nbytes) // max(self.keys_ANKZD.shape[1], 1)


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros. In host memory they take room only where they are written: a few sessions need little of the pools."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNED, np.uint8)
    first = -memory.ctypes.data % ALIGNED  # as PyTorch's own memory: products are the same bits wherever it lies
    return torch.from_numpy(memory[first : first + size]).view(dtype).view(*shape)
