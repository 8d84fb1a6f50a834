"""Attention of one sequence by the kernels that come with PyTorch, each giving its logsumexp for merging.

Shapes: L new tokens, E entries, H query heads, K key/value heads, D head dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

# (q_HLD, k_KED, v_KED, causal) -> (y_HLD, natural logsumexp_HL). Causal means that the last L entries are the queries'
# own: query i sees entries 0 … E - L + i.
Kernel = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]


def cudnn(q_HLD: Tensor, k_KED: Tensor, v_KED: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """cuDNN, the fastest on Hopper. Its causal mask starts at the first entry: only squares will do."""
    if causal and q_HLD.shape[1] != k_KED.shape[1]:
        raise ValueError(f"cuDNN's causal attention needs a square, got {q_HLD.shape[1]} × {k_KED.shape[1]}")
    y, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        q_HLD[None], k_KED[None], v_KED[None], None, True, 0.0, causal, False
    )
    return y[0], _rows(lse)


def flash(q_HLD: Tensor, k_KED: Tensor, v_KED: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """FlashAttention 2 as built into PyTorch. Its causal mask ends at the last entry for any lengths."""
    y, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
        q_HLD[None], k_KED[None], v_KED[None], 0.0, causal, False
    )
    return y[0], _rows(lse)


def formula(q_HLD: Tensor, k_KED: Tensor, v_KED: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """The definition, in 32 bits."""
    group, new, entries = q_HLD.shape[0] // k_KED.shape[0], q_HLD.shape[1], k_KED.shape[1]
    k_HED, v_HED = (x.float().repeat_interleave(group, 0) for x in (k_KED, v_KED))
    scores_HLE = q_HLD.float() @ k_HED.transpose(1, 2) / math.sqrt(q_HLD.shape[2])
    if causal:
        unseen_LE = torch.ones(new, entries, dtype=torch.bool, device=q_HLD.device).triu(entries - new + 1)
        scores_HLE = scores_HLE.masked_fill(unseen_LE, -math.inf)
    lse_HL = scores_HLE.logsumexp(-1)
    return ((scores_HLE - lse_HL[..., None]).exp() @ v_HED).to(q_HLD.dtype), lse_HL


@dataclass(frozen=True)
class Way:
    """Which kernel takes the history and which the rest: what is left of the history, then the new tokens, causal.

    cuDNN plans anew for each size it meets, which takes longer than the attention itself. Histories are therefore cut
    at multiples of history_step, and queries padded to multiples of query_step: few sizes, met again and again.
    """

    rest: Kernel
    history: Kernel | None = None
    history_step: int = 1
    query_step: int = 1


WAYS: dict[str, Way] = {
    "cudnn": Way(flash, cudnn, history_step=4096, query_step=128),
    "flash": Way(flash),
    "formula": Way(formula, formula),
}
PREFERRED = ("cudnn", "flash")


@lru_cache
def working_way(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, head_dim: int) -> str | None:
    """The first preferred way whose kernels run here and agree with the formula; None if none does."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return None
    generator = torch.Generator(device).manual_seed(0)

    def draw(count: int, tokens: int) -> Tensor:
        x = torch.randn(tokens, count, head_dim, generator=generator, device=device, dtype=torch.float32)
        return x.to(dtype).transpose(0, 1)

    q, k, v = draw(heads, 128), draw(kv_heads, 256), draw(kv_heads, 256)
    for name in PREFERRED:
        way = WAYS[name]
        if _agrees(way.rest, q, k, v, True) and (way.history is None or _agrees(way.history, q, k, v, False)):
            return name
    return None


def _agrees(kernel: Kernel, q_HLD: Tensor, k_KED: Tensor, v_KED: Tensor, causal: bool) -> bool:
    try:
        y, lse = kernel(q_HLD, k_KED, v_KED, causal)
    except RuntimeError:  # not built in, or not for these shapes
        return False
    expected, expected_lse = formula(q_HLD, k_KED, v_KED, causal)
    error = (y.float() - expected.float()).norm() / expected.float().norm()
    # NaN compares as false, and so as a failure.
    return bool(error < 0.02) and bool((lse - expected_lse).abs().max() < 0.02)


def _rows(lse: Tensor) -> Tensor:
    """[1, H, L] or [1, H, L, 1] as [H, L]."""
    return lse[0, ..., 0] if lse.dim() == 4 else lse[0]
