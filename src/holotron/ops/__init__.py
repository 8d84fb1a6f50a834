"""The mathematics that must be fast. Import ops from here: this is the one place where an implementation is chosen.

Every op has a plain PyTorch version that defines what it computes and can be differentiated. On a CUDA device, where no
gradient is asked for, the Triton version of the same name takes its place; callers never name an implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

import torch

from holotron.ops.packing import Packing
from holotron.ops.plain.attention import attention, paged_attention, paged_step_attention, write_pages
from holotron.ops.plain.conv import causal_conv, causal_conv_, causal_conv_step
from holotron.ops.plain.experts import route, run_experts
from holotron.ops.plain.mamba import mamba_step_
from holotron.ops.plain.norm import add_rms_norm, gated_rms_norm, relu_squared, rms_norm
from holotron.ops.plain.scan import discretize, ssd_scan, ssd_scan_, ssd_step

__all__ = [
    "Packing",
    "add_rms_norm",
    "attention",
    "causal_conv",
    "causal_conv_",
    "causal_conv_step",
    "discretize",
    "gated_rms_norm",
    "mamba_step_",
    "paged_attention",
    "paged_step_attention",
    "relu_squared",
    "rms_norm",
    "route",
    "run_experts",
    "ssd_scan",
    "ssd_scan_",
    "ssd_step",
    "write_pages",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _choose(plain: Callable[Arguments, Result], fast: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    @wraps(plain)
    def chosen(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        first = args[0]
        assert isinstance(first, torch.Tensor)
        use_fast = first.is_cuda and not torch.is_grad_enabled()
        return (fast if use_fast else plain)(*args, **kwargs)

    return chosen


if torch.cuda.is_available() and find_spec("triton") is not None:
    from holotron.ops.triton import attention_decode, attention_prefill, conv, mamba, norm, pages, scan

    add_rms_norm = _choose(add_rms_norm, norm.add_rms_norm)
    causal_conv_ = _choose(causal_conv_, conv.causal_conv_)
    gated_rms_norm = _choose(gated_rms_norm, norm.gated_rms_norm)
    mamba_step_ = _choose(mamba_step_, mamba.mamba_step_)
    paged_attention = _choose(paged_attention, attention_prefill.paged_prefill_attention)
    paged_step_attention = _choose(paged_step_attention, attention_decode.paged_decode_attention)
    relu_squared = _choose(relu_squared, norm.relu_squared)
    rms_norm = _choose(rms_norm, norm.rms_norm)
    ssd_scan_ = _choose(ssd_scan_, scan.ssd_scan_)
    write_pages = _choose(write_pages, pages.write_pages)
