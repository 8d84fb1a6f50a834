"""The Mamba-2 recurrence over a FixedPacking with its gradient: chunks side by side, states handed on between them.

Nothing of a chunk but its state goes through memory, and backward makes states again instead of keeping them. Products
are of 16 bits with sums in 32, as are the states between chunks.

Per head, inside a chunk, with s_l the sum of dt · A up to and with l:
    y_l = Σ_{j ≤ l} (C_l · B_j) exp(s_l − s_j) dt_j x_j + exp(s_l) E C_l + D x_l,   E the state that enters.

Shapes: T tokens, S sequences, C chunks of L tokens, H heads, P head dim, N state size, G groups of heads.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.triton.carry import carry, carry_backward


@triton.jit
def _chunk(dt_ptr, A_ptr, start, count, head, H: tl.constexpr, L: tl.constexpr):
    """Step sizes and the sums of log decays of a chunk. A place that no token fills has dt = 0: it changes nothing."""
    l_L = tl.arange(0, L)
    dt_L = tl.load(dt_ptr + (start + l_L) * H + head, mask=l_L < count, other=0.0)
    log_L = dt_L * tl.load(A_ptr + head)
    return dt_L, tl.cumsum(log_L, 0), tl.sum(log_L, 0)


@triton.jit
def _rows(ptr, start, count, PER_TOKEN: tl.constexpr, L: tl.constexpr, W: tl.constexpr, BLOCK_W: tl.constexpr):
    """The rows of a chunk, W values of each; zeros behind its end."""
    l_L, w_W = tl.arange(0, L), tl.arange(0, BLOCK_W)
    inside = (l_L < count)[:, None] & (w_W < W)[None, :]
    return tl.load(ptr + (start + l_L)[:, None] * PER_TOKEN + w_W[None, :], mask=inside, other=0.0)


@triton.jit
def _store_rows(
    ptr, rows, start, count, PER_TOKEN: tl.constexpr, L: tl.constexpr, W: tl.constexpr, BLOCK_W: tl.constexpr
):
    l_L, w_W = tl.arange(0, L), tl.arange(0, BLOCK_W)
    inside = (l_L < count)[:, None] & (w_W < W)[None, :]
    tl.store(ptr + (start + l_L)[:, None] * PER_TOKEN + w_W[None, :], rows.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def _state(ptr, at, P: tl.constexpr, N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr):
    p_P, n_N = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_N)
    inside = (p_P < P)[:, None] & (n_N < N)[None, :]
    return tl.load(ptr + at * (P * N) + p_P[:, None] * N + n_N[None, :], mask=inside, other=0.0)


@triton.jit
def _store_state(ptr, state, at, P: tl.constexpr, N: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr):
    p_P, n_N = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_N)
    inside = (p_P < P)[:, None] & (n_N < N)[None, :]
    tl.store(ptr + at * (P * N) + p_P[:, None] * N + n_N[None, :], state.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def _added_kernel(
    x_ptr, dt_ptr, A_ptr, B_ptr, starts_ptr, counts_ptr, added_ptr, kept_ptr,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """What a chunk adds to the state, and how much of the state it keeps."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    at = (chunk * H + head).to(tl.int64)
    dt_L, sum_L, whole = _chunk(dt_ptr, A_ptr, start, count, head, H, L)
    x_LP = _rows(x_ptr + head * P, start, count, X, L, P, BLOCK_P)
    B_LN = _rows(B_ptr + (head // PER_GROUP) * N, start, count, BC, L, N, BLOCK_N)
    left_LP = x_LP.to(tl.float32) * (dt_L * tl.exp(whole - sum_L))[:, None]
    added_PN = tl.dot(tl.trans(left_LP.to(x_LP.dtype)), B_LN, input_precision="ieee")
    _store_state(added_ptr, added_PN, at, P, N, BLOCK_P, BLOCK_N)
    tl.store(kept_ptr + at, tl.exp(whole))


@triton.jit
def _output_kernel(
    x_ptr, dt_ptr, A_ptr, B_ptr, C_ptr, D_ptr, entering_ptr, starts_ptr, counts_ptr, y_ptr,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    head, chunk = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    group = head // PER_GROUP
    dt_L, sum_L, _ = _chunk(dt_ptr, A_ptr, start, count, head, H, L)
    B_LN = _rows(B_ptr + group * N, start, count, BC, L, N, BLOCK_N)
    C_LN = _rows(C_ptr + group * N, start, count, BC, L, N, BLOCK_N)
    l_L = tl.arange(0, L)
    causal_LL = l_L[:, None] >= l_L[None, :]
    decay_LL = tl.exp(tl.where(causal_LL, sum_L[:, None] - sum_L[None, :], float("-inf")))
    weights_LL = tl.dot(C_LN, tl.trans(B_LN), input_precision="ieee") * decay_LL * dt_L[None, :]
    x_LP = _rows(x_ptr + head * P, start, count, X, L, P, BLOCK_P)
    state_PN = _state(entering_ptr, (chunk * H + head).to(tl.int64), P, N, BLOCK_P, BLOCK_N)
    y_LP = tl.dot(C_LN, tl.trans(state_PN), input_precision="ieee") * tl.exp(sum_L)[:, None]
    y_LP = tl.dot(weights_LL.to(x_LP.dtype), x_LP, acc=y_LP, input_precision="ieee")
    y_LP += tl.load(D_ptr + head) * x_LP.to(tl.float32)
    _store_rows(y_ptr + head * P, y_LP, start, count, H * P, L, P, BLOCK_P)


@triton.jit
def _entering_gradient_kernel(
    dt_ptr, A_ptr, C_ptr, gradient_ptr, starts_ptr, counts_ptr, out_ptr,
    BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradient of the state that enters a chunk, by the chunk's own outputs."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    _, sum_L, _ = _chunk(dt_ptr, A_ptr, start, count, head, H, L)
    gradient_LP = _rows(gradient_ptr + head * P, start, count, H * P, L, P, BLOCK_P)
    C_LN = _rows(C_ptr + (head // PER_GROUP) * N, start, count, BC, L, N, BLOCK_N)
    faded_LP = (gradient_LP.to(tl.float32) * tl.exp(sum_L)[:, None]).to(gradient_LP.dtype)
    out_PN = tl.dot(tl.trans(faded_LP), C_LN, input_precision="ieee")
    _store_state(out_ptr, out_PN, (chunk * H + head).to(tl.int64), P, N, BLOCK_P, BLOCK_N)


@triton.jit
def _bc_gradient_kernel(
    x_ptr, dt_ptr, A_ptr, B_ptr, C_ptr, gradient_ptr, entering_ptr, leaving_ptr, starts_ptr, counts_ptr,
    B_out, C_out, sums_out,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradients of B and C for each head, and what the state that enters adds to those of the sums of decays."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    group, at = head // PER_GROUP, (chunk * H + head).to(tl.int64)
    narrow: tl.constexpr = x_ptr.dtype.element_ty
    l_L = tl.arange(0, L)
    dt_L, sum_L, whole = _chunk(dt_ptr, A_ptr, start, count, head, H, L)
    x_LP = _rows(x_ptr + head * P, start, count, X, L, P, BLOCK_P)
    gradient_LP = _rows(gradient_ptr + head * P, start, count, H * P, L, P, BLOCK_P)
    pairs_LL = tl.dot(gradient_LP, tl.trans(x_LP), input_precision="ieee")
    causal_LL = l_L[:, None] >= l_L[None, :]
    pairs_LL *= tl.exp(tl.where(causal_LL, sum_L[:, None] - sum_L[None, :], float("-inf"))) * dt_L[None, :]
    scaled_LL = pairs_LL.to(narrow)

    leaving_PN = _state(leaving_ptr, at, P, N, BLOCK_P, BLOCK_N)
    to_B_LN = tl.dot(x_LP, leaving_PN, input_precision="ieee") * (dt_L * tl.exp(whole - sum_L))[:, None]
    C_LN = _rows(C_ptr + group * N, start, count, BC, L, N, BLOCK_N)
    to_B_LN = tl.dot(tl.trans(scaled_LL), C_LN, acc=to_B_LN, input_precision="ieee")
    _store_rows(B_out + head * N, to_B_LN, start, count, H * N, L, N, BLOCK_N)

    state_PN = _state(entering_ptr, at, P, N, BLOCK_P, BLOCK_N)
    to_C_LN = tl.dot(gradient_LP, state_PN, input_precision="ieee") * tl.exp(sum_L)[:, None]
    sums_L = tl.sum(to_C_LN * C_LN.to(tl.float32), 1)
    tl.store(sums_out + (start + l_L) * H + head, sums_L, mask=l_L < count)
    B_LN = _rows(B_ptr + group * N, start, count, BC, L, N, BLOCK_N)
    to_C_LN = tl.dot(scaled_LL, B_LN, acc=to_C_LN, input_precision="ieee")
    _store_rows(C_out + head * N, to_C_LN, start, count, H * N, L, N, BLOCK_N)


@triton.jit
def _x_gradient_kernel(
    x_ptr, dt_ptr, A_ptr, B_ptr, C_ptr, D_ptr, gradient_ptr, leaving_ptr, kept_gradient_ptr, starts_ptr, counts_ptr,
    x_out, dt_out, A_out, D_out,
    X: tl.constexpr, BC: tl.constexpr, H: tl.constexpr, PER_GROUP: tl.constexpr, P: tl.constexpr, N: tl.constexpr,
    L: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The gradients of x, dt, A and D. dt_out holds what the state that enters adds to those of the sums of decays."""
    head, chunk = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts_ptr + chunk).to(tl.int64), tl.load(counts_ptr + chunk)
    group, at = head // PER_GROUP, (chunk * H + head).to(tl.int64)
    narrow: tl.constexpr = x_ptr.dtype.element_ty
    l_L = tl.arange(0, L)
    dt_L, sum_L, whole = _chunk(dt_ptr, A_ptr, start, count, head, H, L)
    B_LN = _rows(B_ptr + group * N, start, count, BC, L, N, BLOCK_N)
    C_LN = _rows(C_ptr + group * N, start, count, BC, L, N, BLOCK_N)
    weights_LL = tl.dot(C_LN, tl.trans(B_LN), input_precision="ieee")
    causal_LL = l_L[:, None] >= l_L[None, :]
    weights_LL *= tl.exp(tl.where(causal_LL, sum_L[:, None] - sum_L[None, :], float("-inf")))

    x_LP = _rows(x_ptr + head * P, start, count, X, L, P, BLOCK_P)
    gradient_LP = _rows(gradient_ptr + head * P, start, count, H * P, L, P, BLOCK_P)
    products_LL = tl.dot(gradient_LP, tl.trans(x_LP), input_precision="ieee") * weights_LL
    # Sums over rows and columns are of the same matrix, so that what cancels in dt's gradient does.
    column_L = tl.sum(products_LL, 0)
    sums_L = tl.sum(products_LL * dt_L[None, :], 1) - dt_L * column_L
    places_L = (start + l_L) * H + head
    sums_L += tl.load(dt_out + places_L, mask=l_L < count, other=0.0)

    leaving_PN = _state(leaving_ptr, at, P, N, BLOCK_P, BLOCK_N)
    to_x_LP = tl.dot(B_LN, tl.trans(leaving_PN), input_precision="ieee") * tl.exp(whole - sum_L)[:, None]
    left_L = tl.sum(to_x_LP * x_LP.to(tl.float32), 1)
    sums_L -= dt_L * left_L
    whole_gradient = tl.sum(dt_L * left_L, 0) + tl.exp(whole) * tl.load(kept_gradient_ptr + at)
    # A step's decay counts for its own sum and all that follow.
    decays_L = tl.sum(sums_L, 0) - tl.cumsum(sums_L, 0) + sums_L + whole_gradient
    tl.store(A_out + at, tl.sum(decays_L * dt_L, 0))
    tl.store(dt_out + places_L, column_L + left_L + tl.load(A_ptr + head) * decays_L, mask=l_L < count)

    to_x_LP = tl.dot(tl.trans(weights_LL.to(narrow)), gradient_LP, acc=to_x_LP, input_precision="ieee")
    wide_LP = gradient_LP.to(tl.float32)
    tl.store(D_out + at, tl.sum(tl.sum(wide_LP * x_LP.to(tl.float32), 1), 0))
    to_x_LP = dt_L[:, None] * to_x_LP + tl.load(D_ptr + head) * wide_LP
    _store_rows(x_out + head * P, to_x_LP, start, count, H * P, L, P, BLOCK_P)


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
    return blocks | sizes | {"BC": B_TGN.stride(0)}


def _states(
    x_THP: Tensor, dt_TH: Tensor, A_H: Tensor, B_TGN: Tensor, starts_C: Tensor, counts_C: Tensor, sizes: dict[str, int]
) -> tuple[Tensor, Tensor]:
    """What chunks keep of the state [C, H], and what they add to it [C, H, P, N]."""
    chunks, heads = len(starts_C), sizes["H"]
    kept_CH = dt_TH.new_empty(chunks, heads)
    added_CHPN = x_THP.new_empty(chunks, heads, sizes["P"], sizes["N"])
    _added_kernel[heads, chunks](
        x_THP, dt_TH, A_H, B_TGN, starts_C, counts_C, added_CHPN, kept_CH, X=x_THP.stride(0), **sizes, num_warps=4
    )
    return kept_CH, added_CHPN


@torch.library.custom_op("holotron::ssd_scan", mutates_args=())
def _scan(
    x_THP: Tensor, dt_TH: Tensor, A_H: Tensor, B_TGN: Tensor, C_TGN: Tensor, D_H: Tensor,
    starts_C: Tensor, counts_C: Tensor, first_S: Tensor, counts_S: Tensor, used_1: Tensor, chunk: int,
) -> Tensor:  # fmt: skip
    sizes, dt_TH = _sizes(x_THP, B_TGN, C_TGN, chunk), dt_TH.contiguous()
    kept_CH, added_CHPN = _states(x_THP, dt_TH, A_H, B_TGN, starts_C, counts_C, sizes)
    entering_CHPN = carry(kept_CH, added_CHPN, first_S, counts_S)
    y_THP = _rows_for(used_1, *x_THP.shape, like=x_THP)
    _output_kernel[sizes["H"], len(starts_C)](
        x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, entering_CHPN, starts_C, counts_C, y_THP,
        X=x_THP.stride(0), **sizes, num_warps=8,
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
    kept_CH, added_CHPN = _states(x_THP, dt_TH, A_H, B_TGN, starts_C, counts_C, sizes)
    entering_CHPN = carry(kept_CH, added_CHPN, first_S, counts_S)
    grid = sizes["H"], len(starts_C)
    by_outputs_CHPN = added_CHPN  # which is not needed again
    _entering_gradient_kernel[grid](
        dt_TH, A_H, C_TGN, gradient_THP, starts_C, counts_C, by_outputs_CHPN, **sizes, num_warps=4
    )
    kept_gradient_CH, leaving_CHPN = carry_backward(kept_CH, entering_CHPN, by_outputs_CHPN, first_S, counts_S)
    tokens, heads, state_size = len(x_THP), sizes["H"], sizes["N"]
    to_x_THP, to_dt_TH = _rows_for(used_1, *x_THP.shape, like=x_THP), _rows_for(used_1, *dt_TH.shape, like=dt_TH)
    to_B_THN, to_C_THN = (_rows_for(used_1, tokens, heads, state_size, like=x_THP) for _ in range(2))
    to_A_CH, to_D_CH = torch.empty_like(kept_CH), torch.empty_like(kept_CH)
    _bc_gradient_kernel[grid](
        x_THP, dt_TH, A_H, B_TGN, C_TGN, gradient_THP, entering_CHPN, leaving_CHPN, starts_C, counts_C,
        to_B_THN, to_C_THN, to_dt_TH, X=x_THP.stride(0), **sizes, num_warps=8,
    )  # fmt: skip
    _x_gradient_kernel[grid](
        x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, gradient_THP, leaving_CHPN, kept_gradient_CH, starts_C, counts_C,
        to_x_THP, to_dt_TH, to_A_CH, to_D_CH, X=x_THP.stride(0), **sizes, num_warps=8,
    )  # fmt: skip
    groups = B_TGN.shape[1]
    to_B_TGN, to_C_TGN = (each.unflatten(1, (groups, -1)).sum(2) for each in (to_B_THN, to_C_THN))
    return to_x_THP, to_dt_TH, to_A_CH.sum(0), to_B_TGN, to_C_TGN, to_D_CH.sum(0)


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
    out: Tensor = _scan(
        x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, starts_C, counts_C, first_S, counts_S, used_1, chunk
    )  # fmt: skip
    return out
