"""Times of linear layers at the real shapes of holotron-12b, in bf16 and in 8 bits.

Shapes: T tokens, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F

from holotron.bench.kernels import Case
from holotron.ops.triton.fp8 import fp8_linear, quantize_rows, relu_squared_fp8

# Mamba's two projections, and the MLP's.
LAYERS = {"in_proj": (22656, 5120), "out_proj": (5120, 10240), "up_proj": (20480, 5120), "down_proj": (5120, 20480)}
TOKENS = (100, 2368)
PEAK = (4.3e12, 1580e12)  # what one H200 reaches in copies, and twice what it reaches in large bf16 products


def cases(device: torch.device) -> Iterator[Case]:
    for name, (outputs, inputs) in LAYERS.items():
        weight_OI = (torch.randn(outputs, inputs, device=device) * inputs**-0.5).bfloat16()
        values_OI, scale_O, _ = quantize_rows(weight_OI)
        for tokens in TOKENS:
            x_TI = torch.randn(tokens, inputs, device=device).bfloat16()
            product = partial(fp8_linear, *quantize_rows(x_TI), values_OI, scale_O, None)
            flops = 2.0 * tokens * inputs * outputs
            moved, shape = values_OI.nbytes + 2.0 * tokens * (inputs + outputs), f"{name} {tokens}"
            yield Case("linear", shape, "fp8", product, moved, flops)
            yield Case("linear", shape, "bf16", partial(F.linear, x_TI, weight_OI), moved + values_OI.nbytes, flops)
            yield Case("linear", shape, "quantize", partial(quantize_rows, x_TI), 3.0 * tokens * inputs)
            yield Case("linear", shape, "relu_squared", partial(relu_squared_fp8, x_TI), 3.0 * tokens * inputs)
