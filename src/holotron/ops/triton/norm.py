"""RMS normalisation, plain, after a residual sum, and gated; the squared ReLU. One pass over memory each.

Any leading axes; rows may lie apart (a view of some columns), their elements must not. Computed in 32 bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTWISE_BLOCK = 4096


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) · weight over the last axis."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    launch_rms_norm(_rows(x), None, weight, None, out, None, eps)
    return out


def add_rms_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x + delta, its RMS norm): the sum is rounded to x's type first, as if the two were separate."""
    total, out = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
    launch_rms_norm(_rows(x), _rows(delta), weight, total, out, None, eps)
    return total, out


def launch_rms_norm(
    rows: Tensor,
    delta: Tensor | None,
    weight: Tensor,
    total: Tensor | None,
    out: Tensor,
    scale: Tensor | None,
    eps: float,
) -> None:
    """The norm of each row, of its sum with that of `delta` where there is one; with `scale`, `out` is in 8 bits."""
    if out.numel():
        block, delta_stride = triton.next_power_of_2(rows.shape[1]), 0 if delta is None else delta.stride(0)
        place = rows, delta, weight, total, out, scale, eps, rows.stride(0), delta_stride
        _rms_norm_kernel[(len(rows),)](*place, SIZE=rows.shape[1], BLOCK=block, num_warps=warps(block))


def gated_rms_norm(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float, groups: int, out: Tensor | None = None
) -> Tensor:
    """The plain gated_rms_norm."""
    x_rows, gate_rows = _rows(x), _rows(gate)
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    assert out.is_contiguous()
    if out.numel():
        size = x.shape[-1] // groups
        block = triton.next_power_of_2(size)
        _gated_rms_norm_kernel[(len(x_rows), groups)](
            x_rows,
            gate_rows,
            weight,
            out,
            eps,
            x_rows.stride(0),
            gate_rows.stride(0),
            SIZE=size,
            BLOCK=block,
            num_warps=1,  # 0.042 ms for 2,368 rows of 8 groups of 1,280, with 2 warps 0.043, with 4 0.047
        )
    return out


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)², elementwise."""
    rows, out = _rows(x), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        size = x.shape[-1]
        block = min(ELEMENTWISE_BLOCK, triton.next_power_of_2(size))
        _relu_squared_kernel[(len(rows), triton.cdiv(size, block))](
            rows, out, rows.stride(0), SIZE=size, BLOCK=block, num_warps=warps(block)
        )
    return out


def _rows(x: Tensor) -> Tensor:
    """x as rows with their elements side by side; copied only if it cannot be seen so."""
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def warps(block: int) -> int:
    """One warp per 512 elements: two 16-byte loads of 16-bit values per thread."""
    return max(1, min(16, block // 512))


@triton.jit
def normalise(x, weight_ptr, index, mask, eps, SIZE: tl.constexpr):
    """x · 1/rms · weight; x must be zero outside the mask."""
    scale = tl.rsqrt(tl.sum(x * x, 0) / SIZE + eps)
    return x * scale * tl.load(weight_ptr + index, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_quantized(y, largest, values_ptr, scale_ptr, index, mask):
    """In 8 bits. largest: of the row's absolute values."""
    scale = tl.maximum(largest / 448.0, 1.1754943508222875e-38)
    y = tl.minimum(tl.maximum(y / scale, -448.0), 448.0)
    tl.store(values_ptr + index, y.to(values_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr, scale)


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    delta_ptr,
    weight_ptr,
    total_ptr,
    out_ptr,
    scale_ptr,
    eps,
    x_stride,
    delta_stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    mask = i < SIZE
    x = tl.load(x_ptr + row * x_stride + i, mask=mask, other=0.0).to(tl.float32)
    if delta_ptr is not None:
        delta = tl.load(delta_ptr + row * delta_stride + i, mask=mask, other=0.0).to(tl.float32)
        total = (x + delta).to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row * SIZE + i, total, mask=mask)
        x = total.to(tl.float32)
    y = normalise(x, weight_ptr, i, mask, eps, SIZE)
    if scale_ptr is None:
        tl.store(out_ptr + row * SIZE + i, y.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        y = y.to(total_ptr.dtype.element_ty).to(tl.float32)
        store_quantized(y, tl.max(tl.abs(y), 0), out_ptr + row * SIZE, scale_ptr + row, i, mask)


@triton.jit
def _gated_rms_norm_kernel(
    x_ptr, gate_ptr, weight_ptr, out_ptr, eps, x_stride, gate_stride, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    mask = i < SIZE
    i += group * SIZE
    x = tl.load(x_ptr + row * x_stride + i, mask=mask, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_stride + i, mask=mask, other=0.0).to(tl.float32)
    y = normalise(x * (gate / (1.0 + tl.exp(-gate))), weight_ptr, i, mask, eps, SIZE)
    tl.store(out_ptr + row * SIZE * tl.num_programs(1) + i, y.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _relu_squared_kernel(x_ptr, out_ptr, x_stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = i < SIZE
    x = tl.load(x_ptr + row * x_stride + i, mask=mask, other=0.0).to(tl.float32)
    y = tl.where(x > 0.0, x, 0.0)
    tl.store(out_ptr + row * SIZE + i, (y * y).to(out_ptr.dtype.element_ty), mask=mask)
