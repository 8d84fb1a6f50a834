"""Depthwise causal convolution followed by SiLU, over packed sequences: one kernel for outputs, one for states.

Shapes: T packed tokens, S sequences, C channels, K kernel width, J = K - 1 carried inputs, V pool slots, R sequences
that have tokens, O blocks of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.packing import Packing
from holotron.ops.triton.tables import filled_sequences, token_blocks

STATE_BLOCK_C = 512


@dataclass(frozen=True)
class ConvConfig:
    """The tokens and channels a program computes, the tokens it loads at once, and its warps.

    4 channels for each thread, loads of 8 bytes, were faster than 8.
    """

    block_t: int = 64
    block_c: int = 512
    rows: int = 8
    num_warps: int = 4


# The first is the default.
CONV_CONFIGS = [
    ConvConfig(64, 512, 8, 4),
    ConvConfig(64, 256, 16, 1),
    ConvConfig(64, 256, 8, 1),
    ConvConfig(128, 256, 16, 1),
    ConvConfig(64, 512, 16, 2),
    ConvConfig(32, 512, 8, 2),
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
    assert kernel - 1 <= config.rows, "a sequence's first rows must be all that meet the carried inputs"
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
            ROWS=config.rows,
            num_warps=config.num_warps,
        )
    # A kernel of its own, after the outputs: those still read the states that it replaces.
    rows_R4 = filled_sequences(packing, config.block_t)
    if len(rows_R4):
        block_c = min(STATE_BLOCK_C, triton.next_power_of_2(channels))
        _state_kernel[(triton.cdiv(channels, block_c), len(rows_R4))](
            x_TC,
            pool_VCJ,
            slots_S,
            rows_R4,
            channels,
            x_TC.stride(0),
            *pool_VCJ.stride()[:2],
            J=kernel - 1,
            BLOCK_J=triton.next_power_of_2(kernel - 1),
            BLOCK_C=block_c,
        )
    return y_TC


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
    ROWS: tl.constexpr,
):
    block_ptr = blocks_ptr + tl.program_id(1) * 4
    sequence = tl.load(block_ptr)
    start = tl.load(block_ptr + 1).to(tl.int64)
    length = tl.load(block_ptr + 2)
    offset = tl.load(block_ptr + 3)
    c_C = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside_C = c_C < channels
    bias = tl.zeros([BLOCK_C], dtype=tl.float32)
    if bias_ptr is not None:
        bias += tl.load(bias_ptr + c_C, mask=inside_C, other=0).to(tl.float32)
    weights = ()
    for k in tl.static_range(K):
        weight = tl.load(weight_ptr + c_C * weight_per_channel + k, mask=inside_C, other=0)
        weights = weights + (weight.to(tl.float32),)  # type: ignore[assignment] # noqa: RUF005
    slot = tl.load(slots_ptr + sequence).to(tl.int64)
    carried_C = pool_ptr + slot * pool_per_slot + c_C * pool_per_channel
    for first in range(offset, tl.minimum(offset + BLOCK_T, length), ROWS):
        x_C = x_ptr + (start + first) * x_per_token + c_C
        # All rows are on their way before the first is waited for.
        rows = ()
        for j in tl.static_range(K - 1):
            if first == 0:
                before = tl.load(carried_C + j, mask=inside_C, other=0).to(x_ptr.dtype.element_ty)
            else:
                before = tl.load(x_C + (j - (K - 1)) * x_per_token, mask=inside_C, other=0)
            rows = rows + (before,)  # type: ignore[assignment] # noqa: RUF005
        for t in tl.static_range(ROWS):
            inside = c_C < tl.where(first + t < length, channels, 0)
            row = tl.load(x_C + t * x_per_token, mask=inside, other=0)
            rows = rows + (row,)  # type: ignore[assignment] # noqa: RUF005
        y_C = y_ptr + (start + first) * channels + c_C
        for t in tl.static_range(ROWS):
            y = bias
            for k in tl.static_range(K):
                y += rows[t + k].to(tl.float32) * weights[k]
            y = y / (1 + tl.exp(-y))
            inside = c_C < tl.where(first + t < length, channels, 0)
            tl.store(y_C + t * channels, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    row_ptr = rows_ptr + tl.program_id(1) * 4
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
