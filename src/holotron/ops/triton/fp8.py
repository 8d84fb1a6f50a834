"""Linear layers in 8 bits on devices that multiply them (compute capability 8.9 and later), and what comes before them.

Products are the library's: at 100 rows, where a layer waits for its weights, a kernel of ours was no faster.

Shapes: T tokens, I inputs, O outputs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.plain.fp8 import QuantizedRows
from holotron.ops.triton.norm import launch_rms_norm, store_quantized, warps


def quantize_rows(x_TI: Tensor, out: QuantizedRows | None = None) -> QuantizedRows:
    """The plain quantize_rows in one pass."""
    return _row_by_row("", x_TI, out)


def relu_squared_fp8(x: Tensor) -> QuantizedRows:
    """The plain relu_squared_fp8: the same bits as the two ops one after another."""
    return _row_by_row("relu_squared", x, None)


def _row_by_row(activation: str, x_TI: Tensor, out: QuantizedRows | None) -> QuantizedRows:
    rows = x_TI if x_TI.stride(1) == 1 else x_TI.contiguous()
    out = out or QuantizedRows.empty_like(x_TI)
    count, size = rows.shape
    if count:
        block = triton.next_power_of_2(size)
        _quantize_kernel[(count,)](
            rows,
            out.values_TI,
            out.scale_T,
            rows.stride(0),
            SIZE=size,
            ACTIVATION=activation,
            BLOCK=block,
            num_warps=warps(block),
        )
    return out


def add_rms_norm_fp8(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, QuantizedRows]:
    """The plain add_rms_norm_fp8: the same bits as the two ops one after another."""
    assert x.stride(1) == delta.stride(1) == 1
    total, out = torch.empty(x.shape, dtype=x.dtype, device=x.device), QuantizedRows.empty_like(x)
    launch_rms_norm(x, delta, weight, total, out.values_TI, out.scale_T, eps)
    return total, out


def gated_rms_norm_fp8(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float, groups: int, out: QuantizedRows | None = None
) -> QuantizedRows:
    """The plain gated_rms_norm_fp8: the same bits as the two ops one after another."""
    assert x.stride(1) == gate.stride(1) == 1
    out = out or QuantizedRows.empty_like(x)
    if out.values_TI.numel():
        size, blocks = x.shape[1] // groups, triton.next_power_of_2(groups)
        block = triton.next_power_of_2(size)
        _gated_rms_norm_quantize_kernel[(len(x),)](
            x,
            gate,
            weight,
            out.values_TI,
            out.scale_T,
            eps,
            x.stride(0),
            gate.stride(0),
            SIZE=size,
            GROUPS=groups,
            BLOCK=block,
            BLOCK_G=blocks,
            num_warps=warps(block * blocks),
        )
    return out


def fp8_linear(
    values_TI: Tensor, scale_T: Tensor, dtype: torch.dtype, weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None
) -> Tensor:
    """The plain fp8_linear; sums are kept in the 22 bits or so that the device's 8-bit products have."""
    out_TO = torch._scaled_mm(
        values_TI,
        weight_OI.T,
        scale_a=scale_T[:, None],
        scale_b=scale_O[None, :],
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    ).to(dtype)
    return out_TO if bias_O is None else out_TO + bias_O


# Scales may be written from any row on: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["scale_ptr"])
def _quantize_kernel(
    x_ptr, values_ptr, scale_ptr, x_stride, SIZE: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    mask = i < SIZE
    y = tl.load(x_ptr + row * x_stride + i, mask=mask, other=0.0).to(tl.float32)
    if ACTIVATION == "relu_squared":
        y = tl.where(y > 0.0, y, 0.0)
        y = (y * y).to(x_ptr.dtype.element_ty).to(tl.float32)
    store_quantized(y, tl.max(tl.abs(y), 0), values_ptr + row * SIZE, scale_ptr + row, i, mask)


@triton.jit(do_not_specialize_on_alignment=["scale_ptr"])
def _gated_rms_norm_quantize_kernel(
    x_ptr,
    gate_ptr,
    weight_ptr,
    values_ptr,
    scale_ptr,
    eps,
    x_stride,
    gate_stride,
    SIZE: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_G: tl.constexpr,
):
    """All groups of a row in one program, for they share its scale."""
    row = tl.program_id(0).to(tl.int64)
    g, i = tl.arange(0, BLOCK_G)[:, None], tl.arange(0, BLOCK)[None, :]
    mask = (g < GROUPS) & (i < SIZE)
    at = g * SIZE + i
    x = tl.load(x_ptr + row * x_stride + at, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_stride + at, mask=mask, other=0.0).to(tl.float32)
    y = x * (gate / (1.0 + tl.exp(-gate)))
    y = y * tl.rsqrt(tl.sum(y * y, 1) / SIZE + eps)[:, None]
    y *= tl.load(weight_ptr + at, mask=mask, other=0.0).to(tl.float32)
    y = y.to(x_ptr.dtype.element_ty).to(tl.float32)
    largest = tl.max(tl.max(tl.abs(y), 1), 0)
    store_quantized(y, largest, values_ptr + row * (SIZE * GROUPS), scale_ptr + row, at, mask)
