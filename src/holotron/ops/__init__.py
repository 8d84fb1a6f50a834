"""The mathematics that must be fast. Import ops from here: this is the one place where an implementation is chosen.

Every op has a plain PyTorch version that defines what it computes. A faster one takes its name here for the devices
it covers; callers never name an implementation.
"""

from holotron.ops.packing import Packing
from holotron.ops.plain.attention import attention, paged_attention, write_pages
from holotron.ops.plain.conv import causal_conv, causal_conv_step
from holotron.ops.plain.experts import route, run_experts
from holotron.ops.plain.norm import gated_rms_norm, rms_norm
from holotron.ops.plain.scan import discretize, ssd_scan, ssd_step

__all__ = [
    "Packing",
    "attention",
    "causal_conv",
    "causal_conv_step",
    "discretize",
    "gated_rms_norm",
    "paged_attention",
    "rms_norm",
    "route",
    "run_experts",
    "ssd_scan",
    "ssd_step",
    "write_pages",
]
