"""What the processor of this machine can do."""

import os
from functools import cache

import torch


@cache
def multiplies_bf16() -> bool:
    """Whether it has instructions for products in bfloat16 (AVX-512 BF16 or AMX); HOLOTRON_BF16=0 says that it has not.

    PyTorch computes such products without them, too, and slower than those of float32.
    """
    if os.environ.get("HOLOTRON_BF16") == "0":
        return False
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
