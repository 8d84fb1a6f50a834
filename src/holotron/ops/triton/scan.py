"""The Mamba-2 recurrence over packed sequences, in one pass or two.

In one pass a program carries the state of one block of P of one head along one whole sequence, in registers: the state
is read once and written once, and nothing between two chunks goes through memory. A long sequence then waits for one
program after another chunk. In two passes the first only carries the state and leaves what enters each chunk in memory,
and the second computes the outputs of all chunks at once, those of several heads with one product of B and C.

Shapes: T packed tokens, S sequences, H heads, P head dim, N state size, G groups of heads, V pool slots,
L tokens per chunk, R sequences that have tokens, O chunks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.packing import Packing
from holotron.ops.triton.mamba import softplus
from holotron.ops.triton.tables import filled_sequences, token_blocks


@dataclass(frozen=True)
class ScanConfig:
    """How one pass is cut: tokens per chunk, the part of P a program carries, and what Triton is told."""

    chunk: int = 64
    block_p: int = 32
    num_warps: int = 4
    num_stages: int = 2


@dataclass(frozen=True)
class ScanOutputConfig:
    """How the second of two passes is cut: heads that a program computes, and the part of P it computes at once."""

    heads: int = 4
    block_p: int = 128
    num_warps: int = 4
    num_stages: int = 2


# The first is the default. A single stage is not among them: Triton 3.6 compiles it to code that reads outside its
# memory.
SCAN_CONFIGS = [
    ScanConfig(64, 128, 8, 3),
    *(ScanConfig(64, block_p, 4, 2) for block_p in (32, 16)),
    ScanConfig(128, 32, 8, 2),
]

# Of two passes: the one that carries the state, and the outputs. The first pair is the default.
SPLIT_CONFIGS = [
    (ScanConfig(64, 64, 4, 3), ScanOutputConfig(4, 128, 4, 2)),
    (ScanConfig(128, 128, 8, 2), ScanOutputConfig(4, 128, 8, 2)),
]

# For 32-bit inputs, with which the default would need more shared memory than there is.
WIDE_CONFIG = ScanConfig(64, 32, 4, 2)

# Tokens of a sequence, in the mean, from which on two passes are faster than one: 0.288 against 0.435 ms for 37 × 64.
LONG = 64


def ssd_scan_(
    x_THP: Tensor,
    dt_TH: Tensor,
    A_log_H: Tensor,
    B_TGN: Tensor,
    C_TGN: Tensor,
    D_H: Tensor,
    dt_bias_H: Tensor,
    packing: Packing,
    chunk_size: int,
    pool_VHPN: Tensor,
    slots_S: Tensor,
    *,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    config: ScanConfig | tuple[ScanConfig, ScanOutputConfig] | None = None,
) -> Tensor:
    """The plain ssd_scan_; `chunk_size` is the model's and only a hint there, the kernels cut by their own config."""
    for tensor in (x_THP, dt_TH, B_TGN, C_TGN, pool_VHPN):
        assert tensor[:1].is_contiguous(), "only the first axis may have a stride of its own"
    tokens, heads, head_dim = x_THP.shape
    groups, state_size = B_TGN.shape[1:]
    y_THP = torch.empty((tokens, heads, head_dim), dtype=x_THP.dtype, device=x_THP.device)
    if not tokens:
        return y_THP
    config = config or _choose(packing, x_THP.itemsize)
    first, second = config if isinstance(config, tuple) else (config, None)
    rows_R4 = filled_sequences(packing, first.chunk)
    between: tuple[Tensor | None, Tensor | None, Tensor | None] = None, None, None
    if second is not None:
        chunks_O4 = token_blocks(packing, first.chunk)
        between = _between(len(chunks_O4), first.chunk, x_THP, state_size)
    sizes = {
        "X_PER_TOKEN": x_THP.stride(0),
        "B_PER_TOKEN": B_TGN.stride(0),
        "C_PER_TOKEN": C_TGN.stride(0),
        "HEADS": heads,
        "HEADS_PER_GROUP": heads // groups,
        "P": head_dim,
        "N": state_size,
        "L": first.chunk,
        "BLOCK_N": max(16, triton.next_power_of_2(state_size)),
    }
    block_p = _block_p(first.block_p, head_dim)
    _scan_kernel[(triton.cdiv(head_dim, block_p), heads, len(rows_R4))](
        x_THP,
        dt_TH,
        A_log_H,
        B_TGN,
        C_TGN,
        D_H,
        dt_bias_H,
        y_THP,
        *between,
        pool_VHPN,
        slots_S,
        rows_R4,
        pool_VHPN.stride(0),
        *dt_limit,
        **sizes,
        DT_PER_TOKEN=dt_TH.stride(0),
        LIMITED=dt_limit != (0.0, float("inf")),
        BLOCK_P=block_p,
        num_warps=first.num_warps,
        num_stages=first.num_stages,
    )
    if second is not None:
        count = math.gcd(second.heads, heads // groups)  # these share B and C
        _output_kernel[(heads // count, len(chunks_O4))](
            x_THP,
            B_TGN,
            C_TGN,
            D_H,
            y_THP,
            *between,
            chunks_O4,
            **sizes,
            COUNT=count,
            BLOCK_P=_block_p(second.block_p, head_dim),
            num_warps=second.num_warps,
            num_stages=second.num_stages,
        )
    return y_THP


def _choose(packing: Packing, itemsize: int) -> ScanConfig | tuple[ScanConfig, ScanOutputConfig]:
    """How this batch is computed best."""
    if itemsize == 4:
        return WIDE_CONFIG
    filled = sum(length > 0 for length in packing.lengths)
    # The second also bounds what lies between the two passes: a state for every chunk.
    return SPLIT_CONFIGS[0] if packing.tokens >= LONG * filled else SCAN_CONFIGS[0]


def _block_p(wanted: int, head_dim: int) -> int:
    return min(wanted, max(16, triton.next_power_of_2(head_dim)))


def _between(chunks: int, chunk: int, x_THP: Tensor, state_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the state that enters each chunk, the step sizes, and the sums of log decays from its start on."""
    heads, head_dim = x_THP.shape[1:]
    exact = x_THP.dtype == torch.float32
    sums_dtype = torch.float64 if exact else torch.float32
    entering_OHNP = x_THP.new_empty(chunks, heads, state_size, head_dim)
    steps_OHL = x_THP.new_empty(chunks, heads, chunk, dtype=torch.float32)
    return entering_OHNP, steps_OHL, x_THP.new_empty(chunks, heads, chunk, dtype=sums_dtype)


@triton.jit
def _decay(sum_L, first, L: tl.constexpr):
    """What is left of what earlier tokens (columns) add, at later ones (rows)."""
    l_L = tl.arange(0, L)
    near_L = sum_L.to(tl.float32)
    between_LL = near_L[:, None] - near_L[None, :]
    if sum_L.dtype == tl.float64:
        # The difference of two long sums would lose what separates neighbours.
        rest_L = (sum_L - near_L.to(tl.float64)).to(tl.float32)
        between_LL += rest_L[:, None] - rest_L[None, :]
    # Counted from what the loop changes: a mask computed once for all its rounds would fill registers.
    causal_LL = (first + l_L)[:, None] >= (first + l_L)[None, :]
    return tl.exp(tl.where(causal_LL, between_LL, float("-inf")))


# Tables may start at any of their entries: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["slots_ptr", "rows_ptr"])
def _scan_kernel(
    x_ptr,
    dt_ptr,
    A_log_ptr,
    B_ptr,
    C_ptr,
    D_ptr,
    dt_bias_ptr,
    y_ptr,
    entering_ptr,  # with it the outputs are left to the second pass
    steps_ptr,
    sums_ptr,
    pool_ptr,
    slots_ptr,
    rows_ptr,
    pool_per_slot,
    dt_low,
    dt_high,
    X_PER_TOKEN: tl.constexpr,  # constants, so that addresses fold into the instructions instead of filling registers
    B_PER_TOKEN: tl.constexpr,
    C_PER_TOKEN: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_PER_GROUP: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    L: tl.constexpr,
    BLOCK_N: tl.constexpr,
    DT_PER_TOKEN: tl.constexpr,
    LIMITED: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    block, head = tl.program_id(0), tl.program_id(1)
    group = head // HEADS_PER_GROUP
    row_ptr = rows_ptr + tl.program_id(2) * 4
    sequence = tl.load(row_ptr)
    start = tl.load(row_ptr + 1)
    end = tl.load(row_ptr + 2)
    at_chunk = tl.load(row_ptr + 3).to(tl.int64) * HEADS + head

    l_L = tl.arange(0, L)
    p_P = tl.arange(0, BLOCK_P)
    n_N = tl.arange(0, BLOCK_N)
    inside_P = p_P < P - block * BLOCK_P
    inside_N = n_N < N
    narrow: tl.constexpr = x_ptr.dtype.element_ty
    wide: tl.constexpr = tl.float64 if narrow == tl.float32 else tl.float32

    # The state lies transposed, N by P: the products that make it then have N rows, enough for the widest matrix
    # instruction however small the block of P.
    pool_ptr += head * (P * N) + block * (BLOCK_P * N)
    pool_NP = p_P[None, :] * N + n_N[:, None]
    inside_NP = inside_N[:, None] & inside_P[None, :]
    slot = tl.load(slots_ptr + sequence).to(tl.int64)
    state_NP = tl.load(pool_ptr + slot * pool_per_slot + pool_NP, mask=inside_NP, other=0).to(tl.float32)

    A = -tl.exp(tl.load(A_log_ptr + head).to(tl.float32))
    dt_bias = tl.load(dt_bias_ptr + head).to(tl.float32)
    D = tl.load(D_ptr + head).to(tl.float32)
    x_ptr += head * P + block * BLOCK_P
    y_ptr += head * P + block * BLOCK_P
    B_ptr += group * N
    C_ptr += group * N
    dt_ptr += head
    dt_L = l_L * DT_PER_TOKEN
    raw_L = tl.load(dt_ptr + tl.cast(start, tl.int64) * DT_PER_TOKEN + dt_L, mask=l_L < end - start, other=0)

    for first in range(start, end, L):
        at = tl.cast(first, tl.int64)
        valid_L = l_L < end - first
        valid_LP = valid_L[:, None] & inside_P[None, :]
        valid_LN = valid_L[:, None] & inside_N[None, :]
        # Looked up one chunk ahead: nothing waits for it.
        next_L = tl.load(dt_ptr + (at + L) * DT_PER_TOKEN + dt_L, mask=l_L < end - first - L, other=0)
        x_LP = l_L[:, None] * X_PER_TOKEN + p_P[None, :]
        x = tl.load(x_ptr + at * X_PER_TOKEN + x_LP, mask=valid_LP, other=0)
        B_LN = l_L[:, None] * B_PER_TOKEN + n_N[None, :]
        B = tl.load(B_ptr + at * B_PER_TOKEN + B_LN, mask=valid_LN, other=0)

        dt = softplus(raw_L.to(tl.float32) + dt_bias)
        if LIMITED:
            dt = tl.minimum(tl.maximum(dt, dt_low), dt_high)
        # A place past the end has dt = 0: it neither decays the state nor adds to it.
        dt = tl.where(valid_L, dt, 0.0)
        log_decay = (dt * A).to(wide)
        sum_L = tl.cumsum(log_decay, 0)
        whole = tl.sum(log_decay, 0)
        if entering_ptr is None:
            C_LN = l_L[:, None] * C_PER_TOKEN + n_N[None, :]
            C = tl.load(C_ptr + at * C_PER_TOKEN + C_LN, mask=valid_LN, other=0)
            scores = tl.dot(C, tl.trans(B), input_precision="ieee") * _decay(sum_L, first, L) * dt[None, :]
            y = tl.dot(C, state_NP.to(narrow), input_precision="ieee") * tl.exp(sum_L.to(tl.float32))[:, None]
            y = tl.dot(scores.to(narrow), x, acc=y, input_precision="ieee")
            y += D * x.to(tl.float32)
            y_LP = l_L[:, None] * (HEADS * P) + p_P[None, :]
            tl.store(y_ptr + at * (HEADS * P) + y_LP, y.to(narrow), mask=valid_LP)
        else:
            tl.store(steps_ptr + at_chunk * L + l_L, dt)
            tl.store(sums_ptr + at_chunk * L + l_L, sum_L)
            entering_NP = n_N[:, None] * P + block * BLOCK_P + p_P[None, :]
            tl.store(entering_ptr + at_chunk * (N * P) + entering_NP, state_NP.to(narrow), mask=inside_NP)
            at_chunk += HEADS

        left_L = dt * tl.exp((whole - sum_L).to(tl.float32))
        left = (x.to(tl.float32) * left_L[:, None]).to(narrow)
        kept = tl.exp(whole.to(tl.float32))
        state_NP = tl.dot(tl.trans(B), left, acc=state_NP * kept, input_precision="ieee")
        raw_L = next_L
    # Read again: kept over the loop it would take registers.
    slot = tl.load(slots_ptr + sequence).to(tl.int64)
    tl.store(pool_ptr + slot * pool_per_slot + pool_NP, state_NP.to(pool_ptr.dtype.element_ty), mask=inside_NP)


@triton.jit(do_not_specialize_on_alignment=["chunks_ptr"])
def _output_kernel(
    x_ptr,
    B_ptr,
    C_ptr,
    D_ptr,
    y_ptr,
    entering_ptr,
    steps_ptr,
    sums_ptr,
    chunks_ptr,
    X_PER_TOKEN: tl.constexpr,
    B_PER_TOKEN: tl.constexpr,
    C_PER_TOKEN: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_PER_GROUP: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    L: tl.constexpr,
    BLOCK_N: tl.constexpr,
    COUNT: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """The outputs of one chunk and of COUNT heads that share B and C."""
    chunk = tl.program_id(1)
    row_ptr = chunks_ptr + chunk * 4
    offset = tl.load(row_ptr + 3)
    at = (tl.load(row_ptr + 1) + offset).to(tl.int64)
    count = tl.load(row_ptr + 2) - offset
    first_head = tl.program_id(0) * COUNT
    group = first_head // HEADS_PER_GROUP

    l_L = tl.arange(0, L)
    n_N = tl.arange(0, BLOCK_N)
    narrow: tl.constexpr = x_ptr.dtype.element_ty
    valid_LN = (l_L < count)[:, None] & (n_N < N)[None, :]
    C_LN = l_L[:, None] * C_PER_TOKEN + n_N[None, :]
    C = tl.load(C_ptr + at * C_PER_TOKEN + group * N + C_LN, mask=valid_LN, other=0)
    B_LN = l_L[:, None] * B_PER_TOKEN + n_N[None, :]
    B = tl.load(B_ptr + at * B_PER_TOKEN + group * N + B_LN, mask=valid_LN, other=0)
    common_LL = tl.dot(C, tl.trans(B), input_precision="ieee")
    for head in range(first_head, first_head + COUNT):
        at_chunk = chunk.to(tl.int64) * HEADS + head
        dt = tl.load(steps_ptr + at_chunk * L + l_L)
        sum_L = tl.load(sums_ptr + at_chunk * L + l_L)
        scores = (common_LL * _decay(sum_L, head, L) * dt[None, :]).to(narrow)
        kept_L = tl.exp(sum_L.to(tl.float32))
        D = tl.load(D_ptr + head).to(tl.float32)
        for block in tl.static_range(0, P, BLOCK_P):
            p_P = block + tl.arange(0, BLOCK_P)
            inside_NP = (n_N < N)[:, None] & (p_P < P)[None, :]
            state = tl.load(
                entering_ptr + at_chunk * (N * P) + n_N[:, None] * P + p_P[None, :], mask=inside_NP, other=0
            )
            valid_LP = (l_L < count)[:, None] & (p_P < P)[None, :]
            x_LP = l_L[:, None] * X_PER_TOKEN + p_P[None, :]
            x = tl.load(x_ptr + at * X_PER_TOKEN + head * P + x_LP, mask=valid_LP, other=0)
            y = tl.dot(C, state, input_precision="ieee") * kept_L[:, None]
            y = tl.dot(scores, x, acc=y, input_precision="ieee")
            y += D * x.to(tl.float32)
            y_LP = l_L[:, None] * (HEADS * P) + p_P[None, :]
            tl.store(y_ptr + at * (HEADS * P) + head * P + y_LP, y.to(narrow), mask=valid_LP)
