"""Mixture of experts as grouped matrix products: tokens sorted by expert, a block of them times its expert's weights.

Nothing waits for the host: the grid has as many blocks as any routing could need, those without rows end at once, and
all shapes follow from the number of tokens, so that launches can be recorded in a CUDA graph. Blocks of one expert run
next to each other, so that its weights come from memory once. There are no atomics: each product has a row of its own,
and a token sums its experts in the router's order.

A row never sees its neighbours, so a token's result depends on the batch only through the rows of a block: batches
whose tokens per expert call for the same tile (TILES) give the same bits, others may round differently.

Shapes: T tokens, E experts, K experts per token, N = T · K assignments, D width the experts see, F their inner width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.plain.experts import Activation, Scoring
from holotron.ops.triton.attention_decode import compute_type

SORT_BLOCK = 1024
SUM_BLOCK = 1024


@dataclass(frozen=True)
class ExpertTile:
    """Rows of a block and what one program computes of it; what Triton is told."""

    rows: int
    columns: int
    depth: int
    num_warps: int = 4
    num_stages: int = 4


# By tokens per expert, where they spread evenly. The fewest are bound by the bytes of the weights: small blocks with
# many loads in flight. Many are bound by arithmetic: as large a tile as the accumulators allow.
TILES = (
    (16, ExpertTile(16, 64, 128)),
    (40, ExpertTile(32, 64, 128)),
    (200, ExpertTile(64, 128, 64)),
    (None, ExpertTile(128, 128, 64, num_warps=8)),
)


def choose_tile(tokens: int, experts_per_token: int, experts: int) -> ExpertTile:
    """The tile for so many tokens: it looks at shapes only."""
    return next(tile for most, tile in TILES if most is None or tokens * experts_per_token <= most * experts)


def route(
    logits_TE: Tensor,
    correction_E: Tensor | None,
    experts_per_token: int,
    *,
    scoring: Scoring = "sigmoid",
    groups: int = 1,
    groups_per_token: int = 1,
    normalize: bool = True,
    scaling: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The plain route; among equals the first expert is chosen."""
    tokens, experts = logits_TE.shape
    logits_TE = logits_TE.contiguous()
    chosen_TK = torch.empty(tokens, experts_per_token, dtype=torch.long, device=logits_TE.device)
    weights_TK = torch.empty(tokens, experts_per_token, dtype=torch.float32, device=logits_TE.device)
    if tokens:
        _route_kernel[(tokens,)](
            logits_TE,
            correction_E,
            chosen_TK,
            weights_TK,
            scaling,
            E=experts,
            K=experts_per_token,
            GROUPS=groups,
            GROUPS_PER_TOKEN=groups_per_token,
            SOFTMAX=scoring == "softmax",
            NORMALIZE=normalize,
            BLOCK_G=triton.next_power_of_2(groups),
            BLOCK_E=triton.next_power_of_2(experts // groups),
            BLOCK_K=triton.next_power_of_2(experts_per_token),
            num_warps=1,
        )
    return chosen_TK, weights_TK


def run_experts(
    x_TD: Tensor,
    chosen_TK: Tensor,
    weights_TK: Tensor,
    up_EFD: Tensor,
    down_EDF: Tensor,
    gate_EFD: Tensor | None = None,
    *,
    activation: Activation = "relu_squared",
    tile: ExpertTile | None = None,
) -> Tensor:
    """The plain run_experts, without waiting for the device."""
    tokens, width = x_TD.shape
    experts, inner = up_EFD.shape[:2]
    per_token = chosen_TK.shape[1]
    weights = (up_EFD, down_EDF) if gate_EFD is None else (up_EFD, down_EDF, gate_EFD)
    assert all(tensor.stride(-1) == 1 for tensor in (x_TD, *weights)), "the last axis must be contiguous"
    assert gate_EFD is None or gate_EFD.stride() == up_EFD.stride(), "gate and up must lie alike"
    out_TD = torch.empty(tokens, width, dtype=x_TD.dtype, device=x_TD.device)
    if not tokens:
        return out_TD
    tile = tile or choose_tile(tokens, per_token, experts)
    order_N, blocks_B3 = sort_by_expert(chosen_TK, experts, tile.rows)
    hidden_NF, parts_ND = (
        torch.empty(tokens * per_token, size, dtype=x_TD.dtype, device=x_TD.device) for size in (inner, width)
    )
    options = {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "COMPUTE": compute_type(x_TD, up_EFD),
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages if x_TD.itemsize == 2 else 2,  # wider values fill the shared memory sooner
    }
    # Tiles of one block first: its rows stay in the cache, and so do the weights for the expert's next block.
    _grouped_kernel[(triton.cdiv(inner, tile.columns), len(blocks_B3))](
        x_TD,
        up_EFD,
        gate_EFD,
        hidden_NF,
        order_N,
        blocks_B3,
        x_TD.stride(0),
        *up_EFD.stride()[:2],
        per_token,
        INNER=width,
        OUTER=inner,
        GATHER=True,
        ACTIVATION=activation,
        **options,
    )
    _grouped_kernel[(triton.cdiv(width, tile.columns), len(blocks_B3))](
        hidden_NF,
        down_EDF,
        None,
        parts_ND,
        order_N,
        blocks_B3,
        hidden_NF.stride(0),
        *down_EDF.stride()[:2],
        per_token,
        INNER=inner,
        OUTER=width,
        GATHER=False,
        ACTIVATION="",
        **options,
    )
    block = min(SUM_BLOCK, triton.next_power_of_2(width))
    _sum_kernel[(tokens, triton.cdiv(width, block))](
        parts_ND, weights_TK.contiguous(), out_TD, D=width, K=per_token, BLOCK=block, num_warps=4
    )
    return out_TD


def sort_by_expert(chosen_TK: Tensor, experts: int, rows: int) -> tuple[Tensor, Tensor]:
    """Assignments in the order of their experts, and blocks of at most `rows` of them that share one.

    A block is (expert, first, end) in that order. There are as many as any choice could need; the rest are empty.
    """
    count = chosen_TK.numel()
    most = (count + min(experts, count) * (rows - 1)) // rows
    order_N = torch.empty(count, dtype=torch.int32, device=chosen_TK.device)
    blocks_B3 = torch.empty(most, 3, dtype=torch.int32, device=chosen_TK.device)
    _sort_kernel[(experts,)](
        chosen_TK.contiguous(),
        order_N,
        blocks_B3,
        count,
        most,
        E=experts,
        ROWS=rows,
        BINS=max(64, triton.next_power_of_2(experts + 1)),  # one more, for what is beyond the end
        BLOCK=min(SORT_BLOCK, max(64, triton.next_power_of_2(count))),
        num_warps=4,
    )
    return order_N, blocks_B3


@triton.jit
def _route_kernel(
    logits_ptr,
    correction_ptr,
    chosen_ptr,
    weights_ptr,
    scaling,
    E: tl.constexpr,
    K: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUPS_PER_TOKEN: tl.constexpr,
    SOFTMAX: tl.constexpr,
    NORMALIZE: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    SIZE: tl.constexpr = E // GROUPS
    g = tl.arange(0, BLOCK_G)
    e = tl.arange(0, BLOCK_E)
    expert = g[:, None] * SIZE + e[None, :]
    real = (g < GROUPS)[:, None] & (e < SIZE)[None, :]
    logits = tl.load(logits_ptr + token * E + expert, mask=real, other=float("-inf")).to(tl.float32)
    if SOFTMAX:
        scores = tl.exp(logits - tl.max(tl.max(logits, 1), 0))
        scores = scores / tl.sum(tl.sum(scores, 1), 0)
    else:
        scores = 1.0 / (1.0 + tl.exp(-logits))
    choice = scores
    if correction_ptr is not None:
        choice += tl.load(correction_ptr + expert, mask=real, other=0.0).to(tl.float32)
    choice = tl.where(real, choice, float("-inf"))
    if GROUPS > 1:
        worth = tl.max(choice, 1)
        if SIZE > 1:
            worth += tl.max(tl.where(e[None, :] == tl.argmax(choice, 1)[:, None], float("-inf"), choice), 1)
        kept = g < 0
        for _ in tl.static_range(GROUPS_PER_TOKEN):
            best = tl.argmax(tl.where(kept, float("-inf"), worth), 0)
            kept = kept | (g == best)
        choice = tl.where(kept[:, None], choice, float("-inf"))
    k = tl.arange(0, BLOCK_K)
    chosen = tl.zeros((BLOCK_K,), tl.int32)
    weights = tl.zeros((BLOCK_K,), tl.float32)
    for i in tl.static_range(K):
        top = tl.max(tl.max(choice, 1), 0)
        # Where scores are NaN none is the top: any expert will do, as long as it is one.
        best = tl.min(tl.min(tl.where(choice == top, expert, E - 1), 1), 0)
        taken = expert == best
        chosen = tl.where(k == i, best, chosen)
        weights = tl.where(k == i, tl.sum(tl.sum(tl.where(taken, scores, 0.0), 1), 0), weights)
        choice = tl.where(taken, float("-inf"), choice)
    if NORMALIZE:
        weights = weights / (tl.sum(weights, 0) + 1e-20)
    tl.store(chosen_ptr + token * K + k, chosen.to(tl.int64), mask=k < K)
    tl.store(weights_ptr + token * K + k, weights * scaling, mask=k < K)


@triton.jit(do_not_specialize=["count", "most"])
def _sort_kernel(
    chosen_ptr,
    order_ptr,
    blocks_ptr,
    count,
    most,
    E: tl.constexpr,
    ROWS: tl.constexpr,
    BINS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per expert: it counts all assignments, then writes its own where the earlier experts' end."""
    expert = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    counts = tl.zeros((BINS,), tl.int32)
    for first in range(0, count, BLOCK):
        n = first + lane
        counts += tl.histogram(tl.load(chosen_ptr + n, mask=n < count, other=E).to(tl.int32), BINS)
    bins = tl.arange(0, BINS)
    start = tl.sum(tl.where(bins < expert, counts, 0), 0)
    end = start + tl.sum(tl.where(bins == expert, counts, 0), 0)
    block = tl.sum(tl.where(bins < expert, (counts + ROWS - 1) // ROWS, 0), 0)

    at = start
    for first in range(0, count, BLOCK):
        n = first + lane
        mine = (tl.load(chosen_ptr + n, mask=n < count, other=E) == expert).to(tl.int32)
        tl.store(order_ptr + at + tl.cumsum(mine, 0) - mine, n, mask=mine != 0)
        at += tl.sum(mine, 0)

    for first in range(start, end, ROWS):
        _store_block(blocks_ptr + 3 * block, expert, first, tl.minimum(first + ROWS, end))
        block += 1
    if expert == E - 1:
        for unused in range(block, most):
            _store_block(blocks_ptr + 3 * unused, 0, 0, 0)


@triton.jit
def _store_block(block_ptr, expert, first, end):
    tl.store(block_ptr, expert)
    tl.store(block_ptr + 1, first)
    tl.store(block_ptr + 2, end)


@triton.jit
def _activate(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu_squared":
        x = tl.where(x > 0.0, x, 0.0)
        x = x * x
    elif ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    return x


@triton.jit
def _load_weights(pointers_IO, inside_I, EVEN: tl.constexpr):
    return tl.load(pointers_IO) if EVEN else tl.load(pointers_IO, mask=inside_I[:, None], other=0.0)


@triton.jit
def _grouped_kernel(
    x_ptr,
    weight_ptr,
    gate_ptr,
    out_ptr,
    order_ptr,
    blocks_ptr,
    x_stride,
    weight_stride_e,
    weight_stride_o,
    per_token,
    INNER: tl.constexpr,
    OUTER: tl.constexpr,
    GATHER: tl.constexpr,
    ACTIVATION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """out = activation(x · weightᵀ) of one block of rows, some columns. GATHER: from tokens to the sorted order, where
    the rows of a block lie side by side; without it from there to the assignments' own places.
    """
    block = tl.program_id(1)
    first = tl.load(blocks_ptr + 3 * block + 1)
    end = tl.load(blocks_ptr + 3 * block + 2)
    if first >= end:
        return
    expert = tl.load(blocks_ptr + 3 * block).to(tl.int64)
    row = first + tl.arange(0, ROWS)
    real = row < end
    assignment = tl.load(order_ptr + row, mask=real, other=0).to(tl.int64)
    source = assignment // per_token if GATHER else row.to(tl.int64)
    target = row.to(tl.int64) if GATHER else assignment

    i = tl.arange(0, DEPTH)
    o = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    weight_offsets = expert * weight_stride_e + (o % OUTER)[None, :] * weight_stride_o + i[:, None]
    x_offsets = source[:, None] * x_stride + i[None, :]
    sum_RO = tl.zeros((ROWS, COLUMNS), tl.float32)
    gate_RO = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, INNER, DEPTH):
        inside = i < INNER - start
        x_RI = tl.load(x_ptr + x_offsets + start, mask=real[:, None] & inside[None, :], other=0.0).to(COMPUTE)
        w_IO = _load_weights(weight_ptr + weight_offsets + start, inside, INNER % DEPTH == 0).to(COMPUTE)
        sum_RO = tl.dot(x_RI, w_IO, sum_RO, input_precision="ieee")
        if gate_ptr is not None:
            g_IO = _load_weights(gate_ptr + weight_offsets + start, inside, INNER % DEPTH == 0).to(COMPUTE)
            gate_RO = tl.dot(x_RI, g_IO, gate_RO, input_precision="ieee")
    y_RO = _activate(sum_RO, ACTIVATION) if gate_ptr is None else _activate(gate_RO, ACTIVATION) * sum_RO
    out = out_ptr + target[:, None] * OUTER + o[None, :]
    tl.store(out, y_RO.to(out_ptr.dtype.element_ty), mask=real[:, None] & (o < OUTER)[None, :])


@triton.jit
def _sum_kernel(parts_ptr, weights_ptr, out_ptr, D: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = d < D
    total = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(K):
        weight = tl.load(weights_ptr + token * K + k).to(tl.float32)
        total += weight * tl.load(parts_ptr + (token * K + k) * D + d, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * D + d, total.to(out_ptr.dtype.element_ty), mask=mask)
