"""The Mamba-2 recurrence over packed sequences, as one kernel.

A program carries the state of one block of P of one head along one whole sequence, in registers: the state is read
once and written once, and nothing between two chunks goes through memory.

Shapes: T packed tokens, S sequences, H heads, P head dim, N state size, G groups of heads, V pool slots,
L tokens per chunk, R sequences that have tokens.
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


@dataclass(frozen=True)
class ScanConfig:
    """How the scan is cut: tokens per chunk, the part of P a program carries, and what Triton is told."""

    chunk: int = 64
    block_p: int = 32
    num_warps: int = 4
    num_stages: int = 2
    max_registers: int | None = None


# The first is the default: fastest on an H200 for one sequence of 2,368 tokens (0.25 ms). A single stage is not
# among them: Triton 3.6 compiles it to code that reads outside its memory.
SCAN_CONFIGS = [
    ScanConfig(64, 128, 8, 3),
    *(ScanConfig(64, block_p, 4, stages) for block_p in (32, 16) for stages in (2, 3)),
    ScanConfig(64, 16, 4, 2, 168),
    ScanConfig(64, 128, 8, 2),
    *(ScanConfig(64, 64, warps, 2) for warps in (4, 8)),
    ScanConfig(128, 32, 8, 2),
]

# For 32-bit inputs, with which the default would need more shared memory than there is.
WIDE_CONFIG = ScanConfig(64, 32, 4, 2)


def ssd_scan_(
    x_THP: Tensor,
    dt_TH: Tensor,
    A_H: Tensor,
    B_TGN: Tensor,
    C_TGN: Tensor,
    D_H: Tensor,
    packing: Packing,
    chunk_size: int,
    pool_VHPN: Tensor,
    slots_S: Tensor,
    *,
    config: ScanConfig | None = None,
) -> Tensor:
    """The plain ssd_scan_; `chunk_size` is the model's and only a hint there, the kernel cuts by its own config."""
    config = config or (SCAN_CONFIGS[0] if x_THP.itemsize < 4 else WIDE_CONFIG)
    for tensor in (x_THP, dt_TH, B_TGN, C_TGN, pool_VHPN):
        assert tensor[:1].is_contiguous(), "only the first axis may have a stride of its own"
    tokens, heads, head_dim = x_THP.shape
    groups, state_size = B_TGN.shape[1:]
    y_THP = torch.empty((tokens, heads, head_dim), dtype=x_THP.dtype, device=x_THP.device)
    rows_R3 = filled_sequences(packing)
    block_p = min(config.block_p, max(16, triton.next_power_of_2(head_dim)))
    grid = (triton.cdiv(head_dim, block_p), heads, len(rows_R3))
    if len(rows_R3) == 0:
        return y_THP
    _scan_kernel[grid](
        x_THP,
        dt_TH,
        A_H,
        B_TGN,
        C_TGN,
        D_H,
        y_THP,
        pool_VHPN,
        slots_S,
        rows_R3,
        pool_VHPN.stride(0),
        X_PER_TOKEN=x_THP.stride(0),
        DT_PER_TOKEN=dt_TH.stride(0),
        B_PER_TOKEN=B_TGN.stride(0),
        C_PER_TOKEN=C_TGN.stride(0),
        HEADS=heads,
        HEADS_PER_GROUP=heads // groups,
        P=head_dim,
        N=state_size,
        L=config.chunk,
        BLOCK_P=block_p,
        BLOCK_N=max(16, triton.next_power_of_2(state_size)),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        maxnreg=config.max_registers,
    )
    return y_THP


@lru_cache(maxsize=8)
def filled_sequences(packing: Packing) -> Tensor:
    """A row (sequence, its first token, the token after its last) per sequence that has tokens, longest first."""
    lengths_S, starts_S = np.array(packing.lengths), np.array(packing.starts[:-1])
    order = np.argsort(-lengths_S, kind="stable")
    order = order[lengths_S[order] > 0]
    return to_device(np.stack([order, starts_S[order], starts_S[order] + lengths_S[order]], axis=1), packing.device)


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """A table of int32 on the device, by one copy that the host does not wait for."""
    table = torch.from_numpy(values.astype(np.int32))
    return table.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else table


# Tables may start at any of their entries: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["slots_ptr", "rows_ptr"])
def _scan_kernel(
    x_ptr,
    dt_ptr,
    A_ptr,
    B_ptr,
    C_ptr,
    D_ptr,
    y_ptr,
    pool_ptr,
    slots_ptr,
    rows_ptr,
    pool_per_slot,
    X_PER_TOKEN: tl.constexpr,  # constants, so that addresses fold into the instructions instead of filling registers
    DT_PER_TOKEN: tl.constexpr,
    B_PER_TOKEN: tl.constexpr,
    C_PER_TOKEN: tl.constexpr,
    HEADS: tl.constexpr,
    HEADS_PER_GROUP: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    L: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    block, head = tl.program_id(0), tl.program_id(1)
    group = head // HEADS_PER_GROUP
    row_ptr = rows_ptr + tl.program_id(2) * 3
    sequence = tl.load(row_ptr)
    start = tl.load(row_ptr + 1)
    end = tl.load(row_ptr + 2)

    l_L = tl.arange(0, L)
    p_P = tl.arange(0, BLOCK_P)
    n_N = tl.arange(0, BLOCK_N)
    inside_P = p_P < P - block * BLOCK_P
    inside_N = n_N < N
    narrow: tl.constexpr = x_ptr.dtype.element_ty
    EXACT: tl.constexpr = narrow == tl.float32
    wide: tl.constexpr = tl.float64 if EXACT else tl.float32

    # The state lies transposed, N by P: the products that make it then have N rows, enough for the widest matrix
    # instruction however small the block of P.
    pool_ptr += head * (P * N) + block * (BLOCK_P * N)
    pool_NP = p_P[None, :] * N + n_N[:, None]
    inside_NP = inside_N[:, None] & inside_P[None, :]
    slot = tl.load(slots_ptr + sequence).to(tl.int64)
    state_NP = tl.load(pool_ptr + slot * pool_per_slot + pool_NP, mask=inside_NP, other=0).to(tl.float32)

    A = tl.load(A_ptr + head)
    D = tl.load(D_ptr + head)
    x_ptr += head * P + block * BLOCK_P
    y_ptr += head * P + block * BLOCK_P
    B_ptr += group * N
    C_ptr += group * N
    dt_ptr += head

    for first in range(start, end, L):
        at = tl.cast(first, tl.int64)
        valid_L = l_L < end - first
        valid_LP = valid_L[:, None] & inside_P[None, :]
        valid_LN = valid_L[:, None] & inside_N[None, :]
        # A place past the end holds zeros: with dt = 0 it neither decays the state nor adds to it.
        dt = tl.load(dt_ptr + at * DT_PER_TOKEN + l_L * DT_PER_TOKEN, mask=valid_L, other=0)
        x_LP = l_L[:, None] * X_PER_TOKEN + p_P[None, :]
        x = tl.load(x_ptr + at * X_PER_TOKEN + x_LP, mask=valid_LP, other=0)
        B_LN = l_L[:, None] * B_PER_TOKEN + n_N[None, :]
        B = tl.load(B_ptr + at * B_PER_TOKEN + B_LN, mask=valid_LN, other=0)
        C_LN = l_L[:, None] * C_PER_TOKEN + n_N[None, :]
        C = tl.load(C_ptr + at * C_PER_TOKEN + C_LN, mask=valid_LN, other=0)

        log_decay = (dt * A).to(wide)
        sum_L = tl.cumsum(log_decay, 0)
        whole = tl.sum(log_decay, 0)
        near_L = sum_L.to(tl.float32)
        between_LL = near_L[:, None] - near_L[None, :]
        if EXACT:
            # The difference of two long sums would lose what separates neighbours.
            rest_L = (sum_L - near_L.to(wide)).to(tl.float32)
            between_LL += rest_L[:, None] - rest_L[None, :]
        scores = tl.dot(C, tl.trans(B), input_precision="ieee")
        causal_LL = (first + l_L)[:, None] >= (first + l_L)[None, :]
        scores *= tl.exp(tl.where(causal_LL, between_LL, float("-inf"))) * dt[None, :]

        y = tl.dot(C, state_NP.to(narrow), input_precision="ieee") * tl.exp(near_L)[:, None]
        y = tl.dot(scores.to(narrow), x, acc=y, input_precision="ieee")
        y += D * x.to(tl.float32)
        y_LP = l_L[:, None] * (HEADS * P) + p_P[None, :]
        tl.store(y_ptr + at * (HEADS * P) + y_LP, y.to(narrow), mask=valid_LP)

        left_L = dt * tl.exp((whole - sum_L).to(tl.float32))
        left = (x.to(tl.float32) * left_L[:, None]).to(narrow)
        kept = tl.exp(whole.to(tl.float32))
        state_NP = tl.dot(tl.trans(B), left, acc=state_NP * kept, input_precision="ieee")
    # Read again: kept over the loop it would take registers.
    slot = tl.load(slots_ptr + sequence).to(tl.int64)
    tl.store(pool_ptr + slot * pool_per_slot + pool_NP, state_NP.to(pool_ptr.dtype.element_ty), mask=inside_NP)
