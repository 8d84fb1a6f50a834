"""The causal convolution over a FixedPacking with its gradient, each one pass over memory. Computed in 32 bits.

A program goes down its channels token by token, and holds in registers what the next tokens need of the last ones.

Shapes: T tokens, C channels, K taps, J = K − 1 of them before the present one, R blocks of tokens.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, BLOCK_C = 64, 256  # of a program


@triton.jit
def _inside(c_C, t, first, end, C: tl.constexpr):
    """The channels that there are, of a token that is among those from the first to before the end."""
    return c_C < tl.where((t >= first) & (t < end), C, 0)


@triton.jit
def _row(ptr, t, c_C, T, C: tl.constexpr, PER_TOKEN: tl.constexpr):
    return tl.load(ptr + t * PER_TOKEN + c_C, mask=_inside(c_C, t, 0, T, C), other=0.0)


@triton.jit
def _tap(weight_ptr, c_C, back: tl.constexpr, C: tl.constexpr, K: tl.constexpr):
    """What the token `back` places before counts; nothing behind the last tap."""
    if back >= K:
        return tl.zeros(c_C.shape, tl.float32)
    return tl.load(weight_ptr + c_C * K + K - 1 - back, mask=c_C < C, other=0.0).to(tl.float32)


@triton.jit
def _reached(value_C, same_ptr, t, T, back: tl.constexpr, K: tl.constexpr):
    """The value, where the token `back` places before is of the same sequence, else zero."""
    if back >= K:
        return tl.zeros(value_C.shape, tl.float32)
    same = tl.load(same_ptr + t * (K - 1) + back - 1, mask=t < T, other=0) != 0
    return tl.where(same, value_C, 0.0)


@triton.jit
def _bias(bias_ptr, c_C, C: tl.constexpr, BIASED: tl.constexpr):
    if not BIASED:
        return tl.zeros(c_C.shape, tl.float32)
    return tl.load(bias_ptr + c_C, mask=c_C < C, other=0.0).to(tl.float32)


@triton.jit
def _forward_kernel(
    x_ptr, weight_ptr, bias_ptr, same_ptr, y_ptr, T, C: tl.constexpr, PER_TOKEN: tl.constexpr, K: tl.constexpr,
    BIASED: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(1).to(tl.int64) * ROWS
    c_C = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    tap0_C, tap1_C = _tap(weight_ptr, c_C, 0, C, K), _tap(weight_ptr, c_C, 1, C, K)
    tap2_C, tap3_C = _tap(weight_ptr, c_C, 2, C, K), _tap(weight_ptr, c_C, 3, C, K)
    bias_C = _bias(bias_ptr, c_C, C, BIASED)
    x1_C = _row(x_ptr, first - 1, c_C, T, C, PER_TOKEN).to(tl.float32)
    x2_C = _row(x_ptr, first - 2, c_C, T, C, PER_TOKEN).to(tl.float32)
    x3_C = _row(x_ptr, first - 3, c_C, T, C, PER_TOKEN).to(tl.float32)
    # Rows are asked for two tokens before they are needed.
    next_C, later_C = _row(x_ptr, first, c_C, T, C, PER_TOKEN), _row(x_ptr, first + 1, c_C, T, C, PER_TOKEN)
    for step in range(ROWS):
        t = first + step
        x_C = next_C.to(tl.float32)
        next_C, later_C = later_C, _row(x_ptr, t + 2, c_C, T, C, PER_TOKEN)
        sum_C = bias_C + x_C * tap0_C + x1_C * _reached(tap1_C, same_ptr, t, T, 1, K)
        sum_C += x2_C * _reached(tap2_C, same_ptr, t, T, 2, K) + x3_C * _reached(tap3_C, same_ptr, t, T, 3, K)
        y_C = sum_C / (1.0 + tl.exp(-sum_C))
        tl.store(y_ptr + t * C + c_C, y_C.to(y_ptr.dtype.element_ty), mask=_inside(c_C, t, 0, T, C))
        x3_C, x2_C, x1_C = x2_C, x1_C, x_C


@triton.jit
def _backward_kernel(
    gradient_ptr, x_ptr, weight_ptr, bias_ptr, same_ptr, x_out, weight_out, bias_out, T,
    C: tl.constexpr, PER_TOKEN: tl.constexpr, K: tl.constexpr, BIASED: tl.constexpr, LEARNED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """What comes before the silu is computed again. A token's gradient is whole once the last it reaches was seen."""
    block = tl.program_id(1).to(tl.int64)
    first = block * ROWS
    c_C = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside_C = c_C < C
    tap0_C, tap1_C = _tap(weight_ptr, c_C, 0, C, K), _tap(weight_ptr, c_C, 1, C, K)
    tap2_C, tap3_C = _tap(weight_ptr, c_C, 2, C, K), _tap(weight_ptr, c_C, 3, C, K)
    bias_C = _bias(bias_ptr, c_C, C, BIASED)
    x1_C = _row(x_ptr, first - 1, c_C, T, C, PER_TOKEN).to(tl.float32)
    x2_C = _row(x_ptr, first - 2, c_C, T, C, PER_TOKEN).to(tl.float32)
    x3_C = _row(x_ptr, first - 3, c_C, T, C, PER_TOKEN).to(tl.float32)
    # Of the three tokens before: what those that they reach have left for them so far.
    back1_C = tl.zeros((BLOCK_C,), tl.float32)
    back2_C = tl.zeros((BLOCK_C,), tl.float32)
    back3_C = tl.zeros((BLOCK_C,), tl.float32)
    if LEARNED:
        to_bias_C, to_tap0_C = tl.zeros((BLOCK_C,), tl.float32), tl.zeros((BLOCK_C,), tl.float32)
        to_tap1_C, to_tap2_C = tl.zeros((BLOCK_C,), tl.float32), tl.zeros((BLOCK_C,), tl.float32)
        to_tap3_C = tl.zeros((BLOCK_C,), tl.float32)
    next_C, later_C = _row(x_ptr, first, c_C, T, C, PER_TOKEN), _row(x_ptr, first + 1, c_C, T, C, PER_TOKEN)
    next_gradient_C, later_gradient_C = (
        _row(gradient_ptr, first, c_C, T, C, C),
        _row(gradient_ptr, first + 1, c_C, T, C, C),
    )
    for step in range(ROWS + 3):
        t = first + step
        x_C, gradient_C = next_C.to(tl.float32), next_gradient_C.to(tl.float32)
        next_C, later_C = later_C, _row(x_ptr, t + 2, c_C, T, C, PER_TOKEN)
        next_gradient_C, later_gradient_C = later_gradient_C, _row(gradient_ptr, t + 2, c_C, T, C, C)
        reached1_C = _reached(tap1_C, same_ptr, t, T, 1, K)
        reached2_C = _reached(tap2_C, same_ptr, t, T, 2, K)
        reached3_C = _reached(tap3_C, same_ptr, t, T, 3, K)
        sum_C = bias_C + x_C * tap0_C + x1_C * reached1_C + x2_C * reached2_C + x3_C * reached3_C
        share_C = 1.0 / (1.0 + tl.exp(-sum_C))
        gradient_C *= share_C * (1.0 + sum_C * (1.0 - share_C))
        back3_C += gradient_C * reached3_C
        at = t - 3
        tl.store(x_out + at * C + c_C, back3_C.to(x_out.dtype.element_ty), mask=_inside(c_C, at, first, T, C))
        if LEARNED:
            own_C = tl.where(t < first + ROWS, gradient_C, 0.0)  # the next program counts what follows
            to_bias_C += own_C
            to_tap0_C += own_C * x_C
            to_tap1_C += _reached(own_C * x1_C, same_ptr, t, T, 1, K)
            to_tap2_C += _reached(own_C * x2_C, same_ptr, t, T, 2, K)
            to_tap3_C += _reached(own_C * x3_C, same_ptr, t, T, 3, K)
        back3_C, back2_C, back1_C = (
            back2_C + gradient_C * reached2_C,
            back1_C + gradient_C * reached1_C,
            gradient_C * tap0_C,
        )
        x3_C, x2_C, x1_C = x2_C, x1_C, x_C
    if LEARNED:
        if BIASED:
            tl.store(bias_out + block * C + c_C, to_bias_C, mask=inside_C)
        place = weight_out + (block * C + c_C) * K + K - 1
        tl.store(place, to_tap0_C, mask=inside_C)
        if K > 1:
            tl.store(place - 1, to_tap1_C, mask=inside_C)
        if K > 2:
            tl.store(place - 2, to_tap2_C, mask=inside_C)
        if K > 3:
            tl.store(place - 3, to_tap3_C, mask=inside_C)


def _grid(x_TC: Tensor) -> tuple[int, int]:
    return triton.cdiv(x_TC.shape[1], BLOCK_C), triton.cdiv(len(x_TC), ROWS)


def _sizes(x_TC: Tensor, weight_CK: Tensor) -> dict[str, int]:
    assert x_TC.stride(1) == 1, "channels lie side by side"
    assert weight_CK.shape[1] <= 4, "a program holds no more tokens"
    blocks = {"ROWS": ROWS, "BLOCK_C": BLOCK_C, "num_warps": 2}
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
    return _conv(x_TC, weight_CK, bias_C, same_TJ)
