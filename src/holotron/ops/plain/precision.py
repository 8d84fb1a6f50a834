"""In what precision the ops compute."""

import torch
from torch import Tensor


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """float32 at least: 16-bit inputs are widened, float64 stays what it is."""
    return torch.promote_types(x.dtype, torch.float32)
