"""The mathematics that must be fast. Import ops from here: this is the one place where an implementation is chosen.

Every op has a plain PyTorch version that defines what it computes and can be differentiated. On a CUDA device, where no
gradient is asked for, the Triton version of the same name takes its place; callers never name an implementation.
Sequences that start from nothing come in a Packing of any lengths or in a FixedPacking, which training compiles for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops import fixed
from holotron.ops.fixed import move_rows
from holotron.ops.fixed_packing import FixedPacking, ScanTables
from holotron.ops.low_rank import low_rank_linear
from holotron.ops.packing import Packing
from holotron.ops.plain import attention as plain_attention
from holotron.ops.plain import conv as plain_conv
from holotron.ops.plain import scan as plain_scan
from holotron.ops.plain.attention import paged_attention, paged_step_attention, write_pages
from holotron.ops.plain.conv import causal_conv_
from holotron.ops.plain.experts import route, run_each_expert, run_experts
from holotron.ops.plain.fp8 import (
    QuantizedRows,
    add_rms_norm_fp8,
    fp8_linear,
    gated_rms_norm_fp8,
    quantize_rows,
    relu_squared_fp8,
)
from holotron.ops.plain.mamba import mamba_step_
from holotron.ops.plain.norm import add_rms_norm, gated_rms_norm, relu_squared, rms_norm
from holotron.ops.plain.scan import discretize, ssd_scan_
from holotron.ops.processor import multiplies_bf16

__all__ = [
    "FixedPacking",
    "Packing",
    "QuantizedRows",
    "ScanTables",
    "add_rms_norm",
    "add_rms_norm_fp8",
    "attention",
    "causal_conv",
    "causal_conv_",
    "discretize",
    "fp8_linear",
    "gated_rms_norm",
    "gated_rms_norm_fp8",
    "image_attention",
    "low_rank_linear",
    "mamba_step_",
    "move_rows",
    "multiplies_bf16",
    "paged_attention",
    "paged_step_attention",
    "quantize_rows",
    "relu_squared",
    "relu_squared_fp8",
    "rms_norm",
    "route",
    "run_each_expert",
    "run_experts",
    "ssd_scan",
    "ssd_scan_",
    "write_pages",
]

SHORT_IMAGE = 1024  # positions
FP8_CAPABILITY = (8, 9)  # of the first devices that multiply 8-bit numbers

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _choose(
    plain: Callable[Arguments, Result], fast: Callable[Arguments, Result], capability: tuple[int, int] = (0, 0)
) -> Callable[Arguments, Result]:
    """The fast version for CUDA tensors on a device of at least that capability."""

    @wraps(plain)
    def chosen(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        first = args[0]
        assert isinstance(first, Tensor)
        use_fast = first.is_cuda and not torch.is_grad_enabled()
        if use_fast and capability > (0, 0):
            use_fast = torch.cuda.get_device_capability(first.device) >= capability
        return (fast if use_fast else plain)(*args, **kwargs)

    return chosen


def causal_conv(x_TC: Tensor, weight_CK: Tensor, bias_C: Tensor | None, packing: Packing | FixedPacking) -> Tensor:
    """silu(conv(x)) of packed sequences that start from nothing."""
    if isinstance(packing, FixedPacking):
        return fixed.causal_conv(x_TC, weight_CK, bias_C, packing)
    return plain_conv.causal_conv(x_TC, weight_CK, bias_C, packing)[0]


def ssd_scan(
    x_THP: Tensor,
    dt_TH: Tensor,
    A_H: Tensor,
    B_TGN: Tensor,
    C_TGN: Tensor,
    D_H: Tensor,
    packing: Packing | FixedPacking,
    chunk_size: int,
) -> Tensor:
    """The Mamba-2 recurrence over packed sequences that start from nothing; a FixedPacking brings its own chunks."""
    if isinstance(packing, FixedPacking):
        return fixed.ssd_scan(x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, packing)
    return plain_scan.ssd_scan(x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, packing, chunk_size)[0]


def attention(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, packing: Packing | FixedPacking) -> Tensor:
    """Each token attends to itself and the earlier tokens of its own sequence."""
    if isinstance(packing, FixedPacking):
        return fixed.attention(q_THP, k_TKP, v_TKP, packing, causal=True)
    return plain_attention.attention(q_THP, k_TKP, v_TKP, packing)


def image_attention(q_XHP: Tensor, k_XHP: Tensor, v_XHP: Tensor, packing: FixedPacking | None = None) -> Tensor:
    """Each patch attends to all of its own image. Without a packing, images of one size lie along a first axis."""
    if packing is not None:
        return fixed.attention(q_XHP, k_XHP, v_XHP, packing, causal=False)
    q, k, v = (part.transpose(-3, -2) for part in (q_XHP, k_XHP, v_XHP))
    if q.is_cuda and not torch.is_grad_enabled() and q.ndim == 4 and _is_short(q):
        # The library's own choice, cuDNN, plans anew for each number of images, which takes far longer than these.
        flash: Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v)[0]
        return flash.transpose(-3, -2)
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and not torch.is_grad_enabled() and multiplies_bf16():
        return plain_attention.attention_by_rows(q, k, v).transpose(-3, -2)
    return F.scaled_dot_product_attention(q, k, v).transpose(-3, -2)


def _is_short(q_IHXP: Tensor) -> bool:
    """Whether these are small images that FlashAttention takes as they are."""
    positions, size = q_IHXP.shape[-2:]
    return positions <= SHORT_IMAGE and size % 8 == 0 and size <= 256 and q_IHXP.itemsize == 2


if torch.cuda.is_available() and find_spec("triton") is not None:
    from holotron.ops.triton import attention_decode, attention_prefill, conv, experts, fp8, mamba, norm, pages, scan

    add_rms_norm = _choose(add_rms_norm, norm.add_rms_norm)
    causal_conv_ = _choose(causal_conv_, conv.causal_conv_)
    gated_rms_norm = _choose(gated_rms_norm, norm.gated_rms_norm)
    mamba_step_ = _choose(mamba_step_, mamba.mamba_step_)
    paged_attention = _choose(paged_attention, attention_prefill.paged_prefill_attention)
    paged_step_attention = _choose(paged_step_attention, attention_decode.paged_decode_attention)
    relu_squared = _choose(relu_squared, norm.relu_squared)
    rms_norm = _choose(rms_norm, norm.rms_norm)
    route = _choose(route, experts.route)
    run_experts = _choose(run_experts, experts.run_experts)
    ssd_scan_ = _choose(ssd_scan_, scan.ssd_scan_)
    write_pages = _choose(write_pages, pages.write_pages)

    add_rms_norm_fp8 = _choose(add_rms_norm_fp8, fp8.add_rms_norm_fp8, FP8_CAPABILITY)
    fp8_linear = _choose(fp8_linear, fp8.fp8_linear, FP8_CAPABILITY)
    gated_rms_norm_fp8 = _choose(gated_rms_norm_fp8, fp8.gated_rms_norm_fp8, FP8_CAPABILITY)
    quantize_rows = _choose(quantize_rows, fp8.quantize_rows, FP8_CAPABILITY)
    relu_squared_fp8 = _choose(relu_squared_fp8, fp8.relu_squared_fp8, FP8_CAPABILITY)
