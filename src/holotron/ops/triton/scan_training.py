"""The Mamba-2 recurrence over a FixedPacking with its gradient: chunks side by side, states handed on between them.

Nothing of a chunk but its state goes through memory, and backward makes states again instead of keeping them. Products
are of 16 bits with sums in 32, as are the states between chunks.

Per head, inside a chunk, with s_l the sum of dt · A up to and with l:
    y_l = Σ_{j ≤ l} (C_l · B_j) exp(s_l − s_j) dt_j x_j + exp(s_l) E C_l + D x_l,   E the state that enters.

Shapes: T tokens, S sequences, C chunks of L tokens, R tiles of M tokens in a chunk, H heads, P head dim, N state size,
G groups of heads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.triton.carry import carry_backward_into, carry_into

# Tokens of a chunk that a program computes the results of. Two programs of that many fit on a processor side by side,
# so that one computes while the other waits for memory.
TILE = 64


@triton.jit
def _rows(ptr, start, count, PER_TOKEN: tl.constexpr, M: tl.constexpr, W: tl.constexpr, BLOCK_W: tl.constexpr):
    """So many rows, W values of each; zeros behind the last of a chunk."""
    m_M, w_W = tl.arange(0, M), tl.arange(0, BLOCK_W)
    inside = (m_M < count)[:, None] & (w_W < W)[None, :]
    return tl.load(ptr + (start + m_M)[:, None] * PER_TOKEN + w_W[None, :], mask=inside, other=0.0)


@triton.jit
def _store_rows(
    ptr, rows, start, count, PER_TOKEN: tl.constexpr, M: tl.constexpr, W: tl.constexpr, BLOCK_W: tl.constexpr
):
    m_M, w_W = tl.arange(0, M), tl.arange(0, BLOCK_W)
    inside = (m_M < count)[:, None] & (w_W < W)[None, :]
    tl.store(ptr + (start + m_M)[:, None] * PER_TOKEN + w_W[None, :], rows.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def _state(ptr, at, count, P: tl.constexpr, N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr):
    """A state; zeros for a chunk without tokens, whose states are never written."""
    p_P, n_N = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_N)
    inside = (p_P < tl.where(count > 0, P, 0))[:, None] & (n_N < N)[None, :]
    return tl.load(ptr + at * (P * N) + p_P[:, None] * N + n_N[None, :], mask=inside, other=0.0)


@triton.jit
def _store_state(ptr, state, at, P: tl.constexpr, N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr):
    p_P, n_N = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_N)
    inside = (p_P < P)[:, None] & (n_N < N)[None, :]
    tl.store(ptr + at * (P * N) + p_P[:, None] * N + n_N[None, :], state.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def _tile(starts_ptr, counts_ptr, M: tl.constexpr, L: tl.constexpr):
    """The chunk of a program, its first token and how many it has, and which of its tiles is meant."""
    chunk = tl.program_id(1) // (L // M)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    return chunk, start, count, tl.program_id(1) % (L // M)


@triton.jit
def _part(ptr, at, tile, M: tl.constexpr, L: tl.constexpr):
    """The values of a tile's tokens, of an array [C, H, L]."""
    return tl.load(ptr + at * L + tile * M + tl.arange(0, M))


@triton.jit
def _decay(sum_M, tile, earlier_sum_M, earlier, M: tl.constexpr):
    """What is left of what earlier tokens (columns) add, at those of a tile (rows)."""
    m_M = tl.arange(0, M)
    causal_MM = (tile * M + m_M)[:, None] >= (earlier * M + m_M)[None, :]
    return tl.exp(tl.where(causal_MM, sum_M[:, None] - earlier_sum_M[None, :], float("-inf")))


@triton.jit
def _later_decay(sum_M, tile, later_sum_M, later, M: tl.constexpr):
    """The same with those that add as rows."""
    m_M = tl.arange(0, M)
    causal_MM = (tile * M + m_M)[:, None] <= (later * M + m_M)[None, :]
    return tl.exp(tl.where(causal_MM, later_sum_M[None, :] - sum_M[:, None], float("-inf")))


@triton.jit
def _added_kernel(
    x_ptr, dt_ptr, A_ptr, B_ptr, starts_ptr, counts_ptr, added_ptr, kept_ptr, steps_ptr, sums_ptr,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """What a chunk adds to the state, how much of the state it keeps, its step sizes and the sums of its log decays."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    at = (chunk * H + head).to(tl.int64)
    l_L = tl.arange(0, L)
    # A place that no token fills has dt = 0: it changes nothing.
    dt_L = tl.load(dt_ptr + (start + l_L) * H + head, mask=l_L < count, other=0.0)
    log_L = dt_L * tl.load(A_ptr + head)
    sum_L, whole = tl.cumsum(log_L, 0), tl.sum(log_L, 0)
    tl.store(steps_ptr + at * L + l_L, dt_L)
    tl.store(sums_ptr + at * L + l_L, sum_L)
    tl.store(kept_ptr + at, tl.exp(whole))
    x_LP = _rows(x_ptr + head * P, start, count, X, L, P, BLOCK_P)
    B_LN = _rows(B_ptr + (head // PER_GROUP) * N, start, count, BC, L, N, BLOCK_N)
    left_LP = x_LP.to(tl.float32) * (dt_L * tl.exp(whole - sum_L))[:, None]
    added_PN = tl.dot(tl.trans(left_LP.to(x_LP.dtype)), B_LN, input_precision="ieee")
    _store_state(added_ptr, added_PN, at, P, N, BLOCK_P, BLOCK_N)


@triton.jit
def _output_kernel(
    x_ptr, B_ptr, C_ptr, D_ptr, entering_ptr, steps_ptr, sums_ptr, starts_ptr, counts_ptr, y_ptr,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    chunk, start, count, tile = _tile(starts_ptr, counts_ptr, M, L)
    group, at, here = head // PER_GROUP, (chunk * H + head).to(tl.int64), tile * M
    sum_M = _part(sums_ptr, at, tile, M, L)
    C_MN = _rows(C_ptr + group * N, start + here, count - here, BC, M, N, BLOCK_N)
    state_PN = _state(entering_ptr, at, count, P, N, BLOCK_P, BLOCK_N)
    y_MP = tl.dot(C_MN, tl.trans(state_PN), input_precision="ieee") * tl.exp(sum_M)[:, None]
    for earlier in range(tile + 1):
        there = earlier * M
        B_MN = _rows(B_ptr + group * N, start + there, count - there, BC, M, N, BLOCK_N)
        x_MP = _rows(x_ptr + head * P, start + there, count - there, X, M, P, BLOCK_P)
        weights_MM = tl.dot(C_MN, tl.trans(B_MN), input_precision="ieee")
        weights_MM *= _decay(sum_M, tile, _part(sums_ptr, at, earlier, M, L), earlier, M)
        weights_MM *= _part(steps_ptr, at, earlier, M, L)[None, :]
        y_MP = tl.dot(weights_MM.to(x_MP.dtype), x_MP, acc=y_MP, input_precision="ieee")
    x_MP = _rows(x_ptr + head * P, start + here, count - here, X, M, P, BLOCK_P)
    y_MP += tl.load(D_ptr + head) * x_MP.to(tl.float32)
    _store_rows(y_ptr + head * P, y_MP, start + here, count - here, H * P, M, P, BLOCK_P)


@triton.jit
def _entering_gradient_kernel(
    C_ptr, gradient_ptr, sums_ptr, starts_ptr, counts_ptr, out_ptr,
    BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of the state that enters a chunk, by the chunk's own outputs."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    at = (chunk * H + head).to(tl.int64)
    gradient_LP = _rows(gradient_ptr + head * P, start, count, H * P, L, P, BLOCK_P)
    C_LN = _rows(C_ptr + (head // PER_GROUP) * N, start, count, BC, L, N, BLOCK_N)
    faded_LP = gradient_LP.to(tl.float32) * tl.exp(_part(sums_ptr, at, 0, L, L))[:, None]
    out_PN = tl.dot(tl.trans(faded_LP.to(gradient_LP.dtype)), C_LN, input_precision="ieee")
    _store_state(out_ptr, out_PN, at, P, N, BLOCK_P, BLOCK_N)


@triton.jit
def _c_gradient_kernel(
    x_ptr, B_ptr, C_ptr, gradient_ptr, entering_ptr, steps_ptr, sums_ptr, starts_ptr, counts_ptr, C_out, entered_out,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of C, and what the state that enters adds to those of the sums of decays, [C, H, L]."""
    group = tl.program_id(0)
    chunk, start, count, tile = _tile(starts_ptr, counts_ptr, M, L)
    here = tile * M
    C_MN = _rows(C_ptr + group * N, start + here, count - here, BC, M, N, BLOCK_N)
    to_C_MN = tl.zeros((M, BLOCK_N), tl.float32)
    for head in range(group * PER_GROUP, (group + 1) * PER_GROUP):
        at = (chunk * H + head).to(tl.int64)
        sum_M = _part(sums_ptr, at, tile, M, L)
        gradient_MP = _rows(gradient_ptr + head * P, start + here, count - here, H * P, M, P, BLOCK_P)
        state_PN = _state(entering_ptr, at, count, P, N, BLOCK_P, BLOCK_N)
        by_state_MN = tl.dot(gradient_MP, state_PN, input_precision="ieee") * tl.exp(sum_M)[:, None]
        entered_M = tl.sum(by_state_MN * C_MN.to(tl.float32), 1)
        tl.store(entered_out + at * L + here + tl.arange(0, M), entered_M)
        to_C_MN += by_state_MN
        for earlier in range(tile + 1):
            there = earlier * M
            x_MP = _rows(x_ptr + head * P, start + there, count - there, X, M, P, BLOCK_P)
            B_MN = _rows(B_ptr + group * N, start + there, count - there, BC, M, N, BLOCK_N)
            pairs_MM = tl.dot(gradient_MP, tl.trans(x_MP), input_precision="ieee")
            pairs_MM *= _decay(sum_M, tile, _part(sums_ptr, at, earlier, M, L), earlier, M)
            pairs_MM *= _part(steps_ptr, at, earlier, M, L)[None, :]
            to_C_MN = tl.dot(pairs_MM.to(x_MP.dtype), B_MN, acc=to_C_MN, input_precision="ieee")
    groups: tl.constexpr = H // PER_GROUP
    _store_rows(C_out + group * N, to_C_MN, start + here, count - here, groups * N, M, N, BLOCK_N)


@triton.jit
def _b_gradient_kernel(
    x_ptr, C_ptr, gradient_ptr, leaving_ptr, steps_ptr, sums_ptr, starts_ptr, counts_ptr, B_out,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    chunk, start, count, tile = _tile(starts_ptr, counts_ptr, M, L)
    here = tile * M
    to_B_MN = tl.zeros((M, BLOCK_N), tl.float32)
    for head in range(group * PER_GROUP, (group + 1) * PER_GROUP):
        at = (chunk * H + head).to(tl.int64)
        dt_M, sum_M = _part(steps_ptr, at, tile, M, L), _part(sums_ptr, at, tile, M, L)
        whole = tl.load(sums_ptr + at * L + L - 1)
        x_MP = _rows(x_ptr + head * P, start + here, count - here, X, M, P, BLOCK_P)
        left_MP = (x_MP.to(tl.float32) * (dt_M * tl.exp(whole - sum_M))[:, None]).to(x_MP.dtype)
        leaving_PN = _state(leaving_ptr, at, count, P, N, BLOCK_P, BLOCK_N)
        to_B_MN = tl.dot(left_MP, leaving_PN, acc=to_B_MN, input_precision="ieee")
        for later in range(tile, L // M):
            there = later * M
            gradient_MP = _rows(gradient_ptr + head * P, start + there, count - there, H * P, M, P, BLOCK_P)
            C_MN = _rows(C_ptr + group * N, start + there, count - there, BC, M, N, BLOCK_N)
            pairs_MM = tl.dot(x_MP, tl.trans(gradient_MP), input_precision="ieee") * dt_M[:, None]
            pairs_MM *= _later_decay(sum_M, tile, _part(sums_ptr, at, later, M, L), later, M)
            to_B_MN = tl.dot(pairs_MM.to(x_MP.dtype), C_MN, acc=to_B_MN, input_precision="ieee")
    groups: tl.constexpr = H // PER_GROUP
    _store_rows(B_out + group * N, to_B_MN, start + here, count - here, groups * N, M, N, BLOCK_N)


@triton.jit
def _x_gradient_kernel(
    x_ptr, B_ptr, C_ptr, D_ptr, gradient_ptr, leaving_ptr, steps_ptr, sums_ptr, starts_ptr, counts_ptr,
    x_out, column_out, left_out, rows_out, D_out,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, M: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradients of x and D, and of what a token adds, by outputs of its chunk and by the state that leaves it.

    rows_out has for each tile what its tokens are to those of the later tiles, [tiles, C, H, L].
    """
    head = tl.program_id(0)
    chunk, start, count, tile = _tile(starts_ptr, counts_ptr, M, L)
    group, at, here = head // PER_GROUP, (chunk * H + head).to(tl.int64), tile * M
    m_M = tl.arange(0, M)
    dt_M, sum_M = _part(steps_ptr, at, tile, M, L), _part(sums_ptr, at, tile, M, L)
    whole = tl.load(sums_ptr + at * L + L - 1)
    x_MP = _rows(x_ptr + head * P, start + here, count - here, X, M, P, BLOCK_P)
    B_MN = _rows(B_ptr + group * N, start + here, count - here, BC, M, N, BLOCK_N)
    leaving_PN = _state(leaving_ptr, at, count, P, N, BLOCK_P, BLOCK_N)
    to_x_MP = tl.dot(B_MN, tl.trans(leaving_PN), input_precision="ieee") * tl.exp(whole - sum_M)[:, None]
    tl.store(left_out + at * L + here + m_M, tl.sum(to_x_MP * x_MP.to(tl.float32), 1))
    column_M = tl.zeros((M,), tl.float32)
    rows_out += tile * (tl.num_programs(1) // (L // M)).to(tl.int64) * H * L
    for later in range(tile, L // M):
        there = later * M
        gradient_MP = _rows(gradient_ptr + head * P, start + there, count - there, H * P, M, P, BLOCK_P)
        C_MN = _rows(C_ptr + group * N, start + there, count - there, BC, M, N, BLOCK_N)
        weights_MM = tl.dot(B_MN, tl.trans(C_MN), input_precision="ieee")
        weights_MM *= _later_decay(sum_M, tile, _part(sums_ptr, at, later, M, L), later, M)
        to_x_MP = tl.dot(weights_MM.to(x_MP.dtype), gradient_MP, acc=to_x_MP, input_precision="ieee")
        # Sums over rows and columns are of the same matrix, so that what cancels in dt's gradient does.
        weights_MM *= tl.dot(x_MP, tl.trans(gradient_MP), input_precision="ieee")
        column_M += tl.sum(weights_MM, 1)
        tl.store(rows_out + at * L + there + m_M, tl.sum(weights_MM * dt_M[:, None], 0))
    tl.store(column_out + at * L + here + m_M, column_M)
    gradient_MP = _rows(gradient_ptr + head * P, start + here, count - here, H * P, M, P, BLOCK_P).to(tl.float32)
    tl.store(D_out + at * (L // M) + tile, tl.sum(tl.sum(gradient_MP * x_MP.to(tl.float32), 1), 0))
    to_x_MP = dt_M[:, None] * to_x_MP + tl.load(D_ptr + head) * gradient_MP
    _store_rows(x_out + head * P, to_x_MP, start + here, count - here, H * P, M, P, BLOCK_P)


@triton.jit
def _dt_gradient_kernel(
    A_ptr, steps_ptr, sums_ptr, entered_ptr, column_ptr, left_ptr, rows_ptr, kept_gradient_ptr, starts_ptr, counts_ptr,
    dt_out, A_out, H: tl.constexpr, L: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """The gradients of dt and A, by what the other kernels have summed."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    at, l_L = (chunk * H + head).to(tl.int64), tl.arange(0, L)
    dt_L, left_L = _part(steps_ptr, at, 0, L, L), _part(left_ptr, at, 0, L, L)
    direct_L = _part(column_ptr, at, 0, L, L) + left_L
    sums_L = _part(entered_ptr, at, 0, L, L) - dt_L * direct_L
    for tile in tl.static_range(L // M):
        of_tile = rows_ptr + tile * tl.num_programs(1).to(tl.int64) * H * L
        sums_L += tl.load(of_tile + at * L + l_L, mask=l_L >= tile * M, other=0.0)
    kept = tl.exp(tl.load(sums_ptr + at * L + L - 1))
    whole_gradient = tl.sum(dt_L * left_L, 0) + kept * tl.load(kept_gradient_ptr + at)
    # A step's decay counts for its own sum and all that follow.
    decays_L = tl.sum(sums_L, 0) - tl.cumsum(sums_L, 0) + sums_L + whole_gradient
    tl.store(A_out + at, tl.sum(decays_L * dt_L, 0))
    to_dt_L = direct_L + tl.load(A_ptr + head) * decays_L
    tl.store(dt_out + (start + l_L) * H + head, to_dt_L, mask=l_L < count)


@triton.jit
def _clear_kernel(ptr, used_ptr, ROW: tl.constexpr, BLOCK: tl.constexpr):
    """Zeros in the rows that no sequence has: padding must not be what the memory held before."""
    row = tl.program_id(0).to(tl.int64)
    if row >= tl.load(used_ptr):
        for part in range(0, ROW, BLOCK):
            lanes = part + tl.arange(0, BLOCK)
            tl.store(ptr + row * ROW + lanes, tl.zeros((BLOCK,), ptr.dtype.element_ty), mask=lanes < ROW)


def _rows_for(used_1: Tensor, *shape: int, like: Tensor) -> Tensor:
    out = like.new_empty(shape)
    row = out[0].numel()
    _clear_kernel[(len(out),)](out, used_1, row, min(1024, triton.next_power_of_2(row)))
    return out


def _sizes(x_THP: Tensor, B_TGN: Tensor, C_TGN: Tensor, chunk: int) -> dict[str, int]:
    (_, heads, head_dim), (groups, state_size) = x_THP.shape, B_TGN.shape[1:]
    assert B_TGN.stride() == C_TGN.stride(), "B and C lie side by side"
    assert x_THP[:1].is_contiguous(), "only tokens may lie apart"
    assert B_TGN[:1].is_contiguous(), "only tokens may lie apart"
    blocks = {
        "BLOCK_P": max(16, triton.next_power_of_2(head_dim)),
        "BLOCK_N": max(16, triton.next_power_of_2(state_size)),
    }
    sizes = {"H": heads, "PER_GROUP": heads // groups, "P": head_dim, "N": state_size, "L": chunk}
    return blocks | sizes | {"BC": B_TGN.stride(0), "M": min(chunk, TILE)}


class _States(NamedTuple):
    """What the other kernels need of each chunk, and the state that enters it."""

    kept_CH: Tensor
    steps_CHL: Tensor
    sums_CHL: Tensor
    added_CHPN: Tensor
    entering_CHPN: Tensor


def _states(
    x_THP: Tensor, dt_TH: Tensor, A_H: Tensor, B_TGN: Tensor, tables: tuple[Tensor, ...], sizes: dict[str, int]
) -> _States:
    starts_C, counts_C, first_S, counts_S = tables
    chunks, heads = len(starts_C), sizes["H"]
    kept_CH = dt_TH.new_empty(chunks, heads)
    steps_CHL, sums_CHL = (dt_TH.new_empty(chunks, heads, sizes["L"]) for _ in range(2))
    added_CHPN, entering_CHPN = (x_THP.new_empty(chunks, heads, sizes["P"], sizes["N"]) for _ in range(2))
    _added_kernel[heads, chunks](
        x_THP, dt_TH, A_H, B_TGN, starts_C, counts_C, added_CHPN, kept_CH, steps_CHL, sums_CHL,
        X=x_THP.stride(0), **sizes, num_warps=8,
    )  # fmt: skip
    carry_into(entering_CHPN, kept_CH, added_CHPN, first_S, counts_S)
    return _States(kept_CH, steps_CHL, sums_CHL, added_CHPN, entering_CHPN)


@torch.library.custom_op("holotron::ssd_scan", mutates_args=())
def _scan(
    x_THP: Tensor, dt_TH: Tensor, A_H: Tensor, B_TGN: Tensor, C_TGN: Tensor, D_H: Tensor,
    starts_C: Tensor, counts_C: Tensor, first_S: Tensor, counts_S: Tensor, used_1: Tensor, chunk: int,
) -> Tensor:  # fmt: skip
    sizes = _sizes(x_THP, B_TGN, C_TGN, chunk)
    made = _states(x_THP, dt_TH.contiguous(), A_H, B_TGN, (starts_C, counts_C, first_S, counts_S), sizes)
    y_THP = _rows_for(used_1, *x_THP.shape, like=x_THP)
    _output_kernel[sizes["H"], len(starts_C) * (chunk // sizes["M"])](
        x_THP, B_TGN, C_TGN, D_H, made.entering_CHPN, made.steps_CHL, made.sums_CHL, starts_C, counts_C, y_THP,
        X=x_THP.stride(0), **sizes, num_warps=4, num_stages=1,
    )  # fmt: skip
    return y_THP


@_scan.register_fake
def _(x_THP: Tensor, *_: Any) -> Tensor:
    return x_THP.new_empty(x_THP.shape)


@torch.library.custom_op("holotron::ssd_scan_backward", mutates_args=())
def _scan_backward(
    gradient_THP: Tensor, x_THP: Tensor, dt_TH: Tensor, A_H: Tensor, B_TGN: Tensor, C_TGN: Tensor, D_H: Tensor,
    starts_C: Tensor, counts_C: Tensor, first_S: Tensor, counts_S: Tensor, used_1: Tensor, chunk: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    sizes, dt_TH, gradient_THP = _sizes(x_THP, B_TGN, C_TGN, chunk), dt_TH.contiguous(), gradient_THP.contiguous()
    made = _states(x_THP, dt_TH, A_H, B_TGN, (starts_C, counts_C, first_S, counts_S), sizes)
    (heads, groups), chunks, tiles = (sizes["H"], B_TGN.shape[1]), len(starts_C), chunk // sizes["M"]
    by_outputs_CHPN, leaving_CHPN = made.added_CHPN, torch.empty_like(made.added_CHPN)  # the first is not needed again
    cut = made.steps_CHL, made.sums_CHL, starts_C, counts_C
    _entering_gradient_kernel[heads, chunks](
        C_TGN, gradient_THP, made.sums_CHL, starts_C, counts_C, by_outputs_CHPN, **sizes, num_warps=8
    )
    kept_gradient_CH = carry_backward_into(
        leaving_CHPN, made.kept_CH, made.entering_CHPN, by_outputs_CHPN, first_S, counts_S
    )
    to_x_THP, to_dt_TH = _rows_for(used_1, *x_THP.shape, like=x_THP), _rows_for(used_1, *dt_TH.shape, like=dt_TH)
    to_B_TGN, to_C_TGN = (_rows_for(used_1, *B_TGN.shape, like=x_THP) for _ in range(2))
    to_A_CH, to_D_CHR = torch.empty_like(made.kept_CH), dt_TH.new_empty(chunks, heads, tiles)
    entered_CHL, column_CHL, left_CHL = (torch.empty_like(made.sums_CHL) for _ in range(3))
    rows_RCHL = dt_TH.new_empty(tiles, *made.sums_CHL.shape)
    more = sizes | {"X": x_THP.stride(0), "num_warps": 4, "num_stages": 1}
    _c_gradient_kernel[groups, chunks * tiles](
        x_THP, B_TGN, C_TGN, gradient_THP, made.entering_CHPN, *cut, to_C_TGN, entered_CHL, **more
    )
    _b_gradient_kernel[groups, chunks * tiles](x_THP, C_TGN, gradient_THP, leaving_CHPN, *cut, to_B_TGN, **more)
    _x_gradient_kernel[heads, chunks * tiles](
        x_THP, B_TGN, C_TGN, D_H, gradient_THP, leaving_CHPN, *cut, to_x_THP, column_CHL, left_CHL, rows_RCHL, to_D_CHR,
        **more,
    )  # fmt: skip
    _dt_gradient_kernel[heads, chunks](
        A_H, made.steps_CHL, made.sums_CHL, entered_CHL, column_CHL, left_CHL, rows_RCHL, kept_gradient_CH,
        starts_C, counts_C, to_dt_TH, to_A_CH, heads, chunk, sizes["M"], num_warps=1,
    )  # fmt: skip
    return to_x_THP, to_dt_TH, to_A_CH.sum(0), to_B_TGN, to_C_TGN, to_D_CHR.sum((0, 2))


@_scan_backward.register_fake
def _(
    gradient_THP: Tensor, x_THP: Tensor, dt_TH: Tensor, A_H: Tensor, B_TGN: Tensor, C_TGN: Tensor, D_H: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    return tuple(part.new_empty(part.shape) for part in (x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.chunk = inputs
    ctx.save_for_backward(*tensors)


def _gradient(ctx: Any, gradient_THP: Tensor) -> tuple[Tensor | None, ...]:
    return *_scan_backward(gradient_THP, *ctx.saved_tensors, ctx.chunk), *(None,) * 6


_scan.register_autograd(_gradient, setup_context=_keep)


def ssd_scan(
    x_THP: Tensor, dt_TH: Tensor, A_H: Tensor, B_TGN: Tensor, C_TGN: Tensor, D_H: Tensor,
    starts_C: Tensor, counts_C: Tensor, first_S: Tensor, counts_S: Tensor, used_1: Tensor, chunk: int,
) -> Tensor:  # fmt: skip
    """The recurrence over sequences cut into chunks: the first token of each and how many it has, the first chunk of
    each sequence and how many it has, and how many tokens are no padding."""
    return _scan(
        x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, starts_C, counts_C, first_S, counts_S, used_1, chunk
    )  # fmt: skip
