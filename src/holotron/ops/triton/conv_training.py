"""The causal convolution over a FixedPacking with its gradient, each one pass over memory. Computed in 32 bits.

Shapes: T tokens, C channels, K taps, J = K − 1 of them before the present one, R blocks of tokens.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_T, BLOCK_C = 16, 128


@triton.jit
def _rows(ptr, t_T, c_C, T, C: tl.constexpr, PER_TOKEN: tl.constexpr):
    inside = ((t_T >= 0) & (t_T < T))[:, None] & (c_C < C)[None, :]
    return tl.load(ptr + t_T.to(tl.int64)[:, None] * PER_TOKEN + c_C[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _reaches(same_ptr, t_T, T, back: tl.constexpr, K: tl.constexpr):
    """Whether the token `back` places before is of the same sequence."""
    if back == 0:
        return t_T >= 0
    return tl.load(same_ptr + t_T * (K - 1) + back - 1, mask=(t_T >= 0) & (t_T < T), other=0) != 0


@triton.jit
def _before_silu(
    x_ptr, weight_ptr, bias_ptr, same_ptr, t_T, c_C, T, C: tl.constexpr, PER_TOKEN: tl.constexpr, K: tl.constexpr,
    BIASED: tl.constexpr,
):  # fmt: skip
    sum_TC = _rows(x_ptr, t_T, c_C, T, C, PER_TOKEN) * tl.load(weight_ptr + c_C * K + K - 1, mask=c_C < C, other=0.0)
    for back in tl.static_range(1, K):
        weight_C = tl.load(weight_ptr + c_C * K + K - 1 - back, mask=c_C < C, other=0.0)
        earlier_TC = _rows(x_ptr, t_T - back, c_C, T, C, PER_TOKEN) * weight_C
        sum_TC += tl.where(_reaches(same_ptr, t_T, T, back, K)[:, None], earlier_TC, 0.0)
    if BIASED:
        sum_TC += tl.load(bias_ptr + c_C, mask=c_C < C, other=0.0)
    return sum_TC


@triton.jit
def _forward_kernel(
    x_ptr, weight_ptr, bias_ptr, same_ptr, y_ptr, T, C: tl.constexpr, PER_TOKEN: tl.constexpr, K: tl.constexpr,
    BIASED: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    t_T = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    c_C = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    sum_TC = _before_silu(x_ptr, weight_ptr, bias_ptr, same_ptr, t_T, c_C, T, C, PER_TOKEN, K, BIASED)
    y_TC = sum_TC / (1.0 + tl.exp(-sum_TC))
    inside = (t_T < T)[:, None] & (c_C < C)[None, :]
    tl.store(y_ptr + t_T.to(tl.int64)[:, None] * C + c_C[None, :], y_TC.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward_kernel(
    gradient_ptr, x_ptr, weight_ptr, bias_ptr, same_ptr, x_out, weight_out, bias_out, T,
    C: tl.constexpr, PER_TOKEN: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr, LEARNED: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """What comes before the silu is computed again for each token that x reaches: cheaper than to keep or write it."""
    block = tl.program_id(1)
    t_T = block * BLOCK_T + tl.arange(0, BLOCK_T)
    c_C = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside_C = c_C < C
    back_TC = tl.zeros((BLOCK_T, BLOCK_C), tl.float32)
    for ahead in tl.static_range(0, K):
        later_T = t_T + ahead
        sum_TC = _before_silu(x_ptr, weight_ptr, bias_ptr, same_ptr, later_T, c_C, T, C, PER_TOKEN, K, BIASED)
        share_TC = 1.0 / (1.0 + tl.exp(-sum_TC))
        gradient_TC = _rows(gradient_ptr, later_T, c_C, T, C, C) * share_TC * (1.0 + sum_TC * (1.0 - share_TC))
        weight_C = tl.load(weight_ptr + c_C * K + K - 1 - ahead, mask=inside_C, other=0.0)
        back_TC += tl.where(_reaches(same_ptr, later_T, T, ahead, K)[:, None], gradient_TC * weight_C, 0.0)
        if ahead == 0 and LEARNED:
            if BIASED:
                tl.store(bias_out + block * C + c_C, tl.sum(gradient_TC, 0), mask=inside_C)
            for tap in tl.static_range(0, K):
                x_TC = _rows(x_ptr, t_T - tap, c_C, T, C, PER_TOKEN)
                product_TC = tl.where(_reaches(same_ptr, t_T, T, tap, K)[:, None], gradient_TC * x_TC, 0.0)
                place = weight_out + (block * C + c_C) * K + K - 1 - tap
                tl.store(place, tl.sum(product_TC, 0), mask=inside_C)
    inside = (t_T < T)[:, None] & inside_C[None, :]
    tl.store(x_out + t_T.to(tl.int64)[:, None] * C + c_C[None, :], back_TC.to(x_out.dtype.element_ty), mask=inside)


def _grid(x_TC: Tensor) -> tuple[int, int]:
    return triton.cdiv(x_TC.shape[1], BLOCK_C), triton.cdiv(len(x_TC), BLOCK_T)


def _sizes(x_TC: Tensor, weight_CK: Tensor) -> dict[str, int]:
    assert x_TC.stride(1) == 1, "channels lie side by side"
    blocks = {"BLOCK_T": BLOCK_T, "BLOCK_C": BLOCK_C}
    return blocks | {"C": x_TC.shape[1], "PER_TOKEN": x_TC.stride(0), "K": weight_CK.shape[1]}


@torch.library.custom_op("holotron::causal_conv", mutates_args=())
def _conv(x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, same_TJ: Tensor) -> Tensor:
    y_TC = x_TC.new_empty(x_TC.shape)
    biased, bias_C = bias_C is not None, weight_CK if bias_C is None else bias_C
    _forward_kernel[_grid(x_TC)](
        x_TC, weight_CK.contiguous(), bias_C, same_TJ, y_TC, len(x_TC), BIASED=biased, **_sizes(x_TC, weight_CK)
    )
    return y_TC


@_conv.register_fake
def _(x_TC: Tensor, *_: Any) -> Tensor:
    return x_TC.new_empty(x_TC.shape)


@torch.library.custom_op("holotron::causal_conv_backward", mutates_args=())
def _conv_backward(
    gradient_TC: Tensor, x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, same_TJ: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor]:
    grid, back_TC = _grid(x_TC), x_TC.new_empty(x_TC.shape)
    blocks = grid[1] if learned else 0
    weight_RCK = weight_CK.new_empty(blocks, *weight_CK.shape, dtype=torch.float32)
    biased, bias_C = bias_C is not None, weight_CK if bias_C is None else bias_C
    bias_RC = weight_RCK.new_zeros(blocks, len(weight_CK))
    _backward_kernel[grid](
        gradient_TC.contiguous(), x_TC, weight_CK.contiguous(), bias_C, same_TJ, back_TC, weight_RCK, bias_RC,
        len(x_TC), BIASED=biased, LEARNED=learned, **_sizes(x_TC, weight_CK),
    )  # fmt: skip
    return back_TC, weight_RCK.sum(0).to(weight_CK.dtype), bias_RC.sum(0).to(bias_C.dtype)


@_conv_backward.register_fake
def _(
    gradient_TC: Tensor, x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    bias_type = (weight_CK if bias_C is None else bias_C).dtype
    weight = weight_CK.new_empty(weight_CK.shape)
    return x_TC.new_empty(x_TC.shape), weight, weight_CK.new_empty(len(weight_CK), dtype=bias_type)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, gradient_TC: Tensor) -> tuple[Tensor | None, ...]:
    _, wants_weight, wants_bias, _ = ctx.needs_input_grad
    to_x, to_weight, to_bias = _conv_backward(gradient_TC, *ctx.saved_tensors, wants_weight or wants_bias)
    return to_x, to_weight if wants_weight else None, to_bias if wants_bias else None, None


_conv.register_autograd(_gradient, setup_context=_keep)


def causal_conv(x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, same_TJ: Tensor) -> Tensor:
    """silu(conv(x)); same: whether the token j + 1 places before is of the same sequence."""
    out: Tensor = _conv(x_TC, weight_CK, bias_C, same_TJ)
    return out
