"""Linear layers in 8 bits on devices that multiply them (compute capability 8.9 and later), and what comes before them.

Many rows go through the library's product. Few rows wait for the weights, and the library leaves half of the bandwidth:
a kernel of its own streams them. How it cuts a layer follows from the layer's shape alone, so a row has the same bits
in every batch of at most FEW_ROWS.

Shapes: T tokens, I inputs, O outputs, S parts of the inputs that are summed apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.plain.fp8 import QuantizedRows
from holotron.ops.triton.norm import normalise

FEW_ROWS = 128
PROGRAMS = 264  # two for each multiprocessor of an H200: a layer with fewer tiles is cut along its inputs, too
SUM_BLOCK = 1024


@dataclass(frozen=True)
class FewRowsConfig:
    """Outputs and inputs of a tile, and what Triton is told. parts: None is as many as fill the device."""

    outputs: int = 128
    inputs: int = 128
    num_warps: int = 8
    num_stages: int = 5
    parts: int | None = None


# The first is the default.
FEW_ROWS_CONFIGS = [
    FewRowsConfig(),
    FewRowsConfig(num_warps=4),
    FewRowsConfig(128, 256, 8, 3),
    FewRowsConfig(64, 128, 4, 4),
    FewRowsConfig(64, 256, 4, 3),
    FewRowsConfig(parts=1),
    FewRowsConfig(64, 128, 4, 4, parts=1),
]


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
            num_warps=_warps(block),
        )
    return out


def add_rms_norm_fp8(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, QuantizedRows]:
    """The plain add_rms_norm_fp8: the same bits as the two ops one after another."""
    assert x.stride(1) == delta.stride(1) == 1
    total, out = torch.empty(x.shape, dtype=x.dtype, device=x.device), QuantizedRows.empty_like(x)
    if out.values_TI.numel():
        block = triton.next_power_of_2(x.shape[1])
        _add_rms_norm_quantize_kernel[(len(x),)](
            x,
            delta,
            weight,
            total,
            out.values_TI,
            out.scale_T,
            eps,
            x.stride(0),
            delta.stride(0),
            SIZE=x.shape[1],
            BLOCK=block,
            num_warps=_warps(block),
        )
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
            num_warps=_warps(block * blocks),
        )
    return out


def _warps(block: int) -> int:
    """One warp per 1,024 elements: four 16-byte loads of 16-bit values per thread."""
    return max(1, min(16, block // 1024))


def fp8_linear(
    values_TI: Tensor, scale_T: Tensor, dtype: torch.dtype, weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None
) -> Tensor:
    """The plain fp8_linear; sums are kept in the 22 bits or so that the device's 8-bit products have."""
    if len(values_TI) <= FEW_ROWS:
        out_TO = multiply_few_rows(values_TI, scale_T, weight_OI, scale_O, dtype)
    else:
        out_TO = multiply_many_rows(values_TI, scale_T, weight_OI, scale_O).to(dtype)
    return out_TO if bias_O is None else out_TO + bias_O


def multiply_many_rows(values_TI: Tensor, scale_T: Tensor, weight_OI: Tensor, scale_O: Tensor) -> Tensor:
    """The library's product of scaled rows, in bfloat16."""
    return torch._scaled_mm(
        values_TI,
        weight_OI.T,
        scale_a=scale_T[:, None],
        scale_b=scale_O[None, :],
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )


def multiply_few_rows(
    values_TI: Tensor,
    scale_T: Tensor,
    weight_OI: Tensor,
    scale_O: Tensor,
    dtype: torch.dtype,
    *,
    config: FewRowsConfig | None = None,
) -> Tensor:
    """The product of scaled rows, tile by tile of the weights; parts of the inputs are summed in order."""
    config = config or FEW_ROWS_CONFIGS[0]
    rows, inputs = values_TI.shape
    outputs = len(weight_OI)
    assert weight_OI.is_contiguous()
    out_TO = torch.empty(rows, outputs, dtype=dtype, device=values_TI.device)
    if not rows:
        return out_TO
    tiles = triton.cdiv(outputs, config.outputs)
    parts = config.parts or min(triton.cdiv(PROGRAMS, tiles), 8)
    depth = triton.cdiv(triton.cdiv(inputs, parts), config.inputs) * config.inputs
    parts = triton.cdiv(inputs, depth)
    sums = out_TO if parts == 1 else torch.empty(parts, rows, outputs, dtype=torch.float32, device=values_TI.device)
    block = max(16, min(128, triton.next_power_of_2(rows)))
    _few_rows_kernel[(tiles, parts, triton.cdiv(rows, block))](
        values_TI,
        scale_T,
        weight_OI,
        scale_O,
        sums,
        rows,
        INPUTS=inputs,
        OUTPUTS=outputs,
        PART=depth,
        SCALED=parts == 1,
        BLOCK_T=block,
        BLOCK_O=config.outputs,
        BLOCK_I=config.inputs,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    if parts > 1:
        block = min(SUM_BLOCK, triton.next_power_of_2(outputs))
        _sum_parts_kernel[(rows, triton.cdiv(outputs, block))](
            sums, scale_T, scale_O, out_TO, rows, OUTPUTS=outputs, PARTS=parts, BLOCK=block, num_warps=4
        )
    return out_TO


@triton.jit
def _store_quantized(y, largest, values_ptr, scale_ptr, index, mask):
    """largest: of the row's absolute values."""
    scale = tl.maximum(largest / 448.0, 1.1754943508222875e-38)
    y = tl.minimum(tl.maximum(y / scale, -448.0), 448.0)
    tl.store(values_ptr + index, y.to(values_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr, scale)


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
    _store_quantized(y, tl.max(tl.abs(y), 0), values_ptr + row * SIZE, scale_ptr + row, i, mask)


@triton.jit
def _add_rms_norm_quantize_kernel(
    x_ptr,
    delta_ptr,
    weight_ptr,
    total_ptr,
    values_ptr,
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
    delta = tl.load(delta_ptr + row * delta_stride + i, mask=mask, other=0.0).to(tl.float32)
    total = (x + delta).to(total_ptr.dtype.element_ty)
    tl.store(total_ptr + row * SIZE + i, total, mask=mask)
    y = normalise(total.to(tl.float32), weight_ptr, i, mask, eps, SIZE)
    y = y.to(total_ptr.dtype.element_ty).to(tl.float32)
    _store_quantized(y, tl.max(tl.abs(y), 0), values_ptr + row * SIZE, scale_ptr + row, i, mask)


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
    _store_quantized(y, largest, values_ptr + row * (SIZE * GROUPS), scale_ptr + row, at, mask)


@triton.jit(do_not_specialize=["rows"])
def _few_rows_kernel(
    x_ptr,
    x_scale_ptr,
    weight_ptr,
    weight_scale_ptr,
    out_ptr,
    rows,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PART: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_I: tl.constexpr,
):
    """One tile of outputs over one part of the inputs. The weights are the first operand, whose rows the matrix
    instruction takes 64 at a time: a small batch then fills no rows with nothing.
    """
    part = tl.program_id(1)
    o = tl.program_id(0) * BLOCK_O + tl.arange(0, BLOCK_O)
    t = tl.program_id(2) * BLOCK_T + tl.arange(0, BLOCK_T)
    i = tl.arange(0, BLOCK_I)
    weights = weight_ptr + (o % OUTPUTS).to(tl.int64)[:, None] * INPUTS + i[None, :]
    tokens = x_ptr + t[None, :] * INPUTS + i[:, None]
    sum_OT = tl.zeros((BLOCK_O, BLOCK_T), tl.float32)
    for start in range(part * PART, tl.minimum(part * PART + PART, INPUTS), BLOCK_I):
        if INPUTS % BLOCK_I == 0:
            w_OI = tl.load(weights + start)
            x_IT = tl.load(tokens + start, mask=(t < rows)[None, :], other=0.0)
        else:
            inside = i < INPUTS - start
            w_OI = tl.load(weights + start, mask=inside[None, :], other=0.0)
            x_IT = tl.load(tokens + start, mask=(t < rows)[None, :] & inside[:, None], other=0.0)
        sum_OT = tl.dot(w_OI, x_IT, sum_OT)
    if SCALED:
        sum_OT *= tl.load(weight_scale_ptr + o, mask=o < OUTPUTS, other=0.0)[:, None]
        sum_OT *= tl.load(x_scale_ptr + t, mask=t < rows, other=0.0)[None, :]
    out = out_ptr + (part * rows + t).to(tl.int64)[:, None] * OUTPUTS + o[None, :]
    tl.store(out, tl.trans(sum_OT).to(out_ptr.dtype.element_ty), mask=(t < rows)[:, None] & (o < OUTPUTS)[None, :])


@triton.jit(do_not_specialize=["rows"])
def _sum_parts_kernel(
    sums_ptr,
    x_scale_ptr,
    weight_scale_ptr,
    out_ptr,
    rows,
    OUTPUTS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = o < OUTPUTS
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(PARTS):
        total += tl.load(sums_ptr + (part * rows + row) * OUTPUTS + o, mask=mask, other=0.0)
    total *= tl.load(weight_scale_ptr + o, mask=mask, other=0.0) * tl.load(x_scale_ptr + row)
    tl.store(out_ptr + row * OUTPUTS + o, total.to(out_ptr.dtype.element_ty), mask=mask)
