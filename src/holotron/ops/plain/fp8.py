"""Linear layers in 8 bits: weights in e4m3 with a scale for each output, inputs rounded the same way row by row.

A row's scale is its own, so what a token gives does not depend on the others of its batch.

Shapes: T tokens, I inputs, O outputs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from holotron.ops.plain.norm import accumulation_dtype, add_rms_norm, gated_rms_norm, relu_squared

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max


class QuantizedRows(NamedTuple):
    """Rows in e4m3, the scale (float32) of each, and the type that they had: that of products with them."""

    values_TI: Tensor
    scale_T: Tensor
    dtype: torch.dtype

    @classmethod
    def empty_like(cls, x_TI: Tensor) -> "QuantizedRows":
        values_TI = torch.empty(x_TI.shape, dtype=FP8, device=x_TI.device)
        return cls(values_TI, torch.empty(len(x_TI), dtype=torch.float32, device=x_TI.device), x_TI.dtype)

    def part(self, start: int, end: int | None = None) -> "QuantizedRows":
        """Some of the rows, as a view."""
        return QuantizedRows(self.values_TI[start:end], self.scale_T[start:end], self.dtype)


def quantize_rows(x_TI: Tensor, out: QuantizedRows | None = None) -> QuantizedRows:
    """The nearest 8-bit numbers, with scales that make the largest of each row 448."""
    wide_TI = x_TI.to(accumulation_dtype(x_TI))
    # A row of zeros has any scale; the smallest normal number keeps the division finite.
    scale_T = (wide_TI.abs().amax(-1) / LARGEST).float().clamp_min(torch.finfo(torch.float32).tiny)
    values_TI = (wide_TI / scale_T[:, None]).clamp(-LARGEST, LARGEST).to(FP8)
    if out is None:
        return QuantizedRows(values_TI, scale_T, x_TI.dtype)
    out.values_TI.copy_(values_TI)
    out.scale_T.copy_(scale_T)
    return out


def add_rms_norm_fp8(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, QuantizedRows]:
    """add_rms_norm with the norm quantized."""
    total, normed = add_rms_norm(x, delta, weight, eps)
    return total, quantize_rows(normed)


def gated_rms_norm_fp8(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float, groups: int, out: QuantizedRows | None = None
) -> QuantizedRows:
    """gated_rms_norm, quantized."""
    return quantize_rows(gated_rms_norm(x, gate, weight, eps, groups), out)


def relu_squared_fp8(x: Tensor) -> QuantizedRows:
    """relu_squared, quantized."""
    return quantize_rows(relu_squared(x))


def fp8_linear(
    values_TI: Tensor, scale_T: Tensor, dtype: torch.dtype, weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None
) -> Tensor:
    """W x + b for quantized rows x and W = weight · scale in e4m3; sums in float32 at least."""
    wide = torch.promote_types(dtype, torch.float32)
    out_TO = values_TI.to(wide) @ weight_OI.to(wide).T * scale_T[:, None].to(wide) * scale_O.to(wide)
    return (out_TO if bias_O is None else out_TO + bias_O).to(dtype)
