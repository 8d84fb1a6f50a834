"""Depthwise causal convolution followed by SiLU, over packed sequences: one kernel for outputs, one for states.

Shapes: T packed tokens, S sequences, C channels, K kernel width, J = K - 1 carried inputs, V pool slots, R sequences
that have tokens, O blocks of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.packing import Packing
from holotron.ops.triton.scan import filled_sequences, to_device

STATE_BLOCK_C = 512


@dataclass(frozen=True)
class ConvConfig:
    """The tokens and channels a program computes, and its warps."""

    block_t: int = 16
    block_c: int = 128
    num_warps: int = 4


CONV_CONFIGS = [
    ConvConfig(16, 128, 4),
    ConvConfig(16, 256, 4),
    ConvConfig(8, 256, 4),
    ConvConfig(32, 128, 4),
    ConvConfig(32, 256, 8),
    ConvConfig(8, 512, 4),
    ConvConfig(32, 64, 4),
]


def causal_conv_(
    x_TC: Tensor,
    weight_CK: Tensor,
    bias_C: Tensor | None,
    packing: Packing,
    pool_VCJ: Tensor,
    slots_S: Tensor,
    *,
    config: ConvConfig | None = None,
) -> Tensor:
    """The plain causal_conv_."""
    config = config or CONV_CONFIGS[0]
    for tensor in (x_TC, weight_CK, pool_VCJ):
        assert tensor.stride(-1) == 1, "the last axis must be contiguous"
    (tokens, channels), kernel = x_TC.shape, weight_CK.shape[1]
    assert kernel - 1 <= config.block_t, "a sequence's first block must hold every token that meets the carried inputs"
    y_TC = torch.empty((tokens, channels), dtype=x_TC.dtype, device=x_TC.device)
    blocks_O4 = token_blocks(packing, config.block_t)
    block_c = min(config.block_c, triton.next_power_of_2(channels))
    if tokens:
        _conv_kernel[(triton.cdiv(channels, block_c), len(blocks_O4))](
            x_TC,
            weight_CK,
            bias_C,
            y_TC,
            pool_VCJ,
            slots_S,
            blocks_O4,
            channels,
            x_TC.stride(0),
            weight_CK.stride(0),
            *pool_VCJ.stride()[:2],
            K=kernel,
            BLOCK_T=config.block_t,
            BLOCK_C=block_c,
            num_warps=config.num_warps,
        )
    # A kernel of its own, after the outputs: those still read the states that it replaces.
    rows_R3 = filled_sequences(packing)
    if len(rows_R3):
        block_c = min(STATE_BLOCK_C, triton.next_power_of_2(channels))
        _state_kernel[(triton.cdiv(channels, block_c), len(rows_R3))](
            x_TC,
            pool_VCJ,
            slots_S,
            rows_R3,
            channels,
            x_TC.stride(0),
            *pool_VCJ.stride()[:2],
            J=kernel - 1,
            BLOCK_J=triton.next_power_of_2(kernel - 1),
            BLOCK_C=block_c,
        )
    return y_TC


@lru_cache(maxsize=8)
def token_blocks(packing: Packing, block_t: int) -> Tensor:
    """A row (sequence, its first token, its length, place of the block in it) per block; none spans two sequences."""
    lengths_S = np.array(packing.lengths)
    counts_S = -(-lengths_S // block_t)
    sequence_O = np.repeat(np.arange(len(lengths_S)), counts_S)
    offset_O = (np.arange(len(sequence_O)) - (counts_S.cumsum() - counts_S)[sequence_O]) * block_t
    starts_O = np.array(packing.starts[:-1])[sequence_O]
    return to_device(np.stack([sequence_O, starts_O, lengths_S[sequence_O], offset_O], axis=1), packing.device)


# Tables may start at any of their entries: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["slots_ptr", "blocks_ptr"])
def _conv_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    pool_ptr,
    slots_ptr,
    blocks_ptr,
    channels,
    x_per_token,
    weight_per_channel,
    pool_per_slot,
    pool_per_channel,
    K: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    block_ptr = blocks_ptr + tl.program_id(1) * 4
    sequence = tl.load(block_ptr)
    start = tl.load(block_ptr + 1).to(tl.int64)
    length = tl.load(block_ptr + 2)
    offset = tl.load(block_ptr + 3)
    c_C = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    t_T = tl.arange(0, BLOCK_T)
    inside_C = c_C < channels
    inside_TC = (offset + t_T < length)[:, None] & inside_C[None, :]

    y_TC = tl.zeros([BLOCK_T, BLOCK_C], dtype=tl.float32)
    if bias_ptr is not None:
        y_TC += tl.load(bias_ptr + c_C, mask=inside_C, other=0).to(tl.float32)[None, :]
    weight_C = weight_ptr + c_C * weight_per_channel
    x_ptr += (start + offset) * x_per_token
    for k in tl.static_range(K):
        back = K - 1 - k
        known_TC = inside_TC & (offset + t_T >= back)[:, None]
        tap_TC = tl.load(x_ptr + (t_T - back)[:, None] * x_per_token + c_C[None, :], mask=known_TC, other=0)
        tap_weight_C = tl.load(weight_C + k, mask=inside_C, other=0).to(tl.float32)
        y_TC += tap_TC.to(tl.float32) * tap_weight_C[None, :]
    if offset == 0:
        # Input j of the carried ones meets tap k at token j - k.
        slot = tl.load(slots_ptr + sequence).to(tl.int64)
        pool_C = pool_ptr + slot * pool_per_slot + c_C * pool_per_channel
        for j in tl.static_range(K - 1):
            carried_C = tl.load(pool_C + j, mask=inside_C, other=0).to(x_ptr.dtype.element_ty).to(tl.float32)
            for k in tl.static_range(j + 1):
                tap_weight_C = tl.load(weight_C + k, mask=inside_C, other=0).to(tl.float32)
                y_TC += tl.where((t_T == j - k)[:, None], (carried_C * tap_weight_C)[None, :], 0.0)
    y_TC = y_TC / (1 + tl.exp(-y_TC))
    y_ptr += (start + offset) * channels
    tl.store(y_ptr + t_T[:, None] * channels + c_C[None, :], y_TC.to(y_ptr.dtype.element_ty), mask=inside_TC)


# Tables may start at any of their entries: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["slots_ptr", "rows_ptr"])
def _state_kernel(
    x_ptr,
    pool_ptr,
    slots_ptr,
    rows_ptr,
    channels,
    x_per_token,
    pool_per_slot,
    pool_per_channel,
    J: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    row_ptr = rows_ptr + tl.program_id(1) * 3
    slot = tl.load(slots_ptr + tl.load(row_ptr)).to(tl.int64)
    start = tl.load(row_ptr + 1)
    count = tl.load(row_ptr + 2) - start
    c_C = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    j_J = tl.arange(0, BLOCK_J)
    inside_CJ = (c_C < channels)[:, None] & (j_J < J)[None, :]
    pool_CJ = pool_ptr + slot * pool_per_slot + c_C[:, None] * pool_per_channel + j_J[None, :]
    # The window is the end of [carried inputs | tokens].
    carried_J = count + j_J < J
    old = tl.load(pool_CJ + count, mask=inside_CJ & carried_J[None, :], other=0)
    token_J = (start + count + j_J - J).to(tl.int64)
    new_CJ = x_ptr + token_J[None, :] * x_per_token + c_C[:, None]
    new = tl.load(new_CJ, mask=inside_CJ & ~carried_J[None, :], other=0)
    window = tl.where(carried_J[None, :], old.to(x_ptr.dtype.element_ty), new)
    # No thread may still be reading the state that this replaces.
    tl.debug_barrier()
    tl.store(pool_CJ, window.to(pool_ptr.dtype.element_ty), mask=inside_CJ)
