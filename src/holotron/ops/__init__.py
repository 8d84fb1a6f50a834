"""The mathematics that must be fast. Import ops from here: this is the one place where an implementation is chosen.

Every op has a plain PyTorch version that defines what it computes. A faster one takes its name here for the devices
it covers; callers never name an implementation.
"""

from holotron.ops.packing import Packing
from holotron.ops.plain.attention import attention, paged_attention, paged_step_attention, write_pages
from holotron.ops.plain.conv import causal_conv, causal_conv_, causal_conv_step
from holotron.ops.plain.experts import route, run_experts
from holotron.ops.plain.mamba import mamba_step_
from holotron.ops.plain.norm import gated_rms_norm, relu_squared, rms_norm
from holotron.ops.plain.scan import discretize, ssd_scan, ssd_scan_, ssd_step

__all__ = [
    "Packing",
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
