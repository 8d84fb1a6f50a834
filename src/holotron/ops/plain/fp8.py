"""Linear layers in 8 bits: weights in e4m3 with a scale for each output, inputs rounded the same way row by row.

A row's scale is its own, so what a token gives does not depend on the others of its batch.

Shapes: T tokens, I inputs, O outputs.
"""

import torch
from torch import Tensor

from holotron.ops.plain.norm import accumulation_dtype

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max


def quantize_rows(x_TI: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest 8-bit numbers, and for each row the scale (float32) that makes its largest one 448."""
    wide_TI = x_TI.to(accumulation_dtype(x_TI))
    # A row of zeros has any scale; the smallest normal number keeps the division finite.
    scale_T = (wide_TI.abs().amax(-1) / LARGEST).float().clamp_min(torch.finfo(torch.float32).tiny)
    return (wide_TI / scale_T[:, None]).clamp(-LARGEST, LARGEST).to(FP8), scale_T


def fp8_linear(x_TI: Tensor, weight_OI: Tensor, scale_O: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """W x + b for W = weight · scale in e4m3, x rounded to e4m3 first; sums in float32 at least."""
    wide = accumulation_dtype(x_TI)
    values_TI, scale_T = quantize_rows(x_TI)
    out_TO = (values_TI.to(wide) @ weight_OI.to(wide).T) * scale_T[:, None].to(wide) * scale_O.to(wide)
    return (out_TO if bias_O is None else out_TO + bias_O).to(x_TI.dtype)
