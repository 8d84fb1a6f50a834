"""Linear layers in 8 bits on devices that multiply them (compute capability 8.9 and later).

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

from holotron.ops.plain.fp8 import FP8, LARGEST

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


def quantize_rows(x_TI: Tensor) -> tuple[Tensor, Tensor]:
    """The plain quantize_rows in one pass."""
    rows = x_TI if x_TI.stride(1) == 1 else x_TI.contiguous()
    count, size = rows.shape
    values_TI = torch.empty(count, size, dtype=FP8, device=x_TI.device)
    scale_T = torch.empty(count, dtype=torch.float32, device=x_TI.device)
    if count:
        block = triton.next_power_of_2(size)
        warps = max(1, min(16, block // 1024))
        _quantize_kernel[(count,)](
            rows, values_TI, scale_T, rows.stride(0), SIZE=size, LARGEST=LARGEST, BLOCK=block, num_warps=warps
        )
    return values_TI, scale_T


def fp8_linear(x_TI: Tensor, weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """The plain fp8_linear; sums are kept in the 22 bits or so that the device's 8-bit products have."""
    values_TI, scale_T = quantize_rows(x_TI)
    if len(x_TI) <= FEW_ROWS:
        out_TO = multiply_few_rows(values_TI, scale_T, weight_OI, scale_O, x_TI.dtype)
    else:
        out_TO = multiply_many_rows(values_TI, scale_T, weight_OI, scale_O).to(x_TI.dtype)
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
def _quantize_kernel(
    x_ptr, values_ptr, scale_ptr, x_stride, SIZE: tl.constexpr, LARGEST: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    mask = i < SIZE
    x = tl.load(x_ptr + row * x_stride + i, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 0) / LARGEST, 1.1754943508222875e-38)
    x = tl.minimum(tl.maximum(x / scale, -LARGEST), LARGEST)
    tl.store(values_ptr + row * SIZE + i, x.to(values_ptr.dtype.element_ty), mask=mask)
    tl.store(scale_ptr + row, scale)


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
