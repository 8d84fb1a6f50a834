"""RMS normalisation, plain and gated, and the squared ReLU."""

import torch
import torch.nn.functional as F
from torch import Tensor


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """float32 at least: 16-bit inputs are widened, float64 stays what it is."""
    return torch.promote_types(x.dtype, torch.float32)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) · weight over the last axis; the product is rounded once, at the end."""
    wide = x.to(accumulation_dtype(x))
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * weight).to(x.dtype)


def add_rms_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The residual stream with a layer's contribution, and that normalised for the next layer."""
    total = x + delta
    return total, rms_norm(total, weight, eps)


def gated_rms_norm(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float, groups: int, out: Tensor | None = None
) -> Tensor:
    """RMSNorm(x · silu(gate)) with the mean square taken over each of `groups` equal parts of the last axis.

    Into `out` where one is given, whose rows lie side by side.
    """
    wide = x.to(accumulation_dtype(x))
    wide = wide * F.silu(gate.to(wide.dtype))
    parts = wide.unflatten(-1, (groups, -1))
    parts = parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + eps)
    y = (parts.flatten(-2) * weight).to(x.dtype)
    return y if out is None else out.copy_(y)


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)², elementwise."""
    # Not square(), which autocast would compute and keep in 32 bits.
    positive = F.relu(x)
    return positive * positive
