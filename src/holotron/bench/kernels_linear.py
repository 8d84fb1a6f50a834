"""Times of linear layers at the real shapes of holotron-12b: bf16 by the library, and 8 bits by each way there is.

Shapes: T tokens, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F

from holotron.bench.kernels import Case
from holotron.ops.triton.fp8 import FEW_ROWS_CONFIGS, multiply_few_rows, multiply_many_rows, quantize_rows

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
            values_TI, scale_T, _ = quantize_rows(x_TI)
            flops = 2.0 * tokens * inputs * outputs
            moved, shape = values_OI.nbytes + 2.0 * tokens * (inputs + outputs), f"{name} {tokens}"
            rows = (values_TI, scale_T, values_OI, scale_O)
            yield Case("linear", shape, "bf16", partial(F.linear, x_TI, weight_OI), moved + values_OI.nbytes, flops)
            yield Case("linear", shape, "quantize", partial(quantize_rows, x_TI), 3.0 * tokens * inputs)
            yield Case("linear", shape, "library", partial(multiply_many_rows, *rows), moved, flops)
            for config in FEW_ROWS_CONFIGS if tokens <= 256 else ():
                run = partial(multiply_few_rows, *rows, torch.bfloat16, config=config)
                yield Case("linear", shape, str(config), run, moved, flops)
