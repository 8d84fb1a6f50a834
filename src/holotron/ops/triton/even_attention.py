"""Attention of sequences that are all of one length, by cuDNN where it works, as an op that compilers leave alone.

cuDNN is twice as fast as the flash kernel on Hopper, but not where it is told bounds. Padding at the end of a causal
sequence sees it and is not seen by it; what follows the last whole sequence attends to nothing, and is zero.

Shapes: T tokens, S sequences of L tokens, H query heads, K key/value heads, P head dim.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten


@torch.library.custom_op("holotron::even_attention", mutates_args=())
def _attention(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, each: int, causal: bool) -> tuple[Tensor, Tensor]:
    way = _cudnn if _works(*_kind(q_THP, k_TKP), causal) else _flash
    q, k, v = (_cut(part, each) for part in (q_THP, k_TKP, v_TKP))
    out, sums = way(q, k, v, causal)
    return _joined(out, len(q_THP)), sums


@_attention.register_fake
def _(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, each: int, causal: bool) -> tuple[Tensor, Tensor]:
    tokens, heads, _ = q_THP.shape
    return q_THP.new_empty(q_THP.shape), q_THP.new_empty(tokens // each, heads, each, dtype=torch.float32)


@torch.library.custom_op("holotron::even_attention_backward", mutates_args=())
def _backward(
    gradient_THP: Tensor, q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, out_THP: Tensor, sums_SHL: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    way = _cudnn_backward if _works(*_kind(q_THP, k_TKP), causal) else _flash_backward
    parts = gradient_THP.contiguous(), q_THP, k_TKP, v_TKP, out_THP
    gradient, q, k, v, out = (_cut(part, sums_SHL.shape[2]) for part in parts)
    back = way(gradient, q, k, v, out, sums_SHL, causal)
    to_q, to_k, to_v = (_joined(part, len(q_THP)) for part in back)
    return to_q, to_k, to_v


@_backward.register_fake
def _(gradient_THP: Tensor, q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q_THP.new_empty(q_THP.shape), k_TKP.new_empty(k_TKP.shape), v_TKP.new_empty(v_TKP.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, _, ctx.causal = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, gradient_THP: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward(gradient_THP, *ctx.saved_tensors, ctx.causal), None, None


_attention.register_autograd(_gradient, setup_context=_keep)


def even_attention(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, each: int, causal: bool) -> Tensor:
    """Each token attends to its own sequence of `each` tokens; causal: to itself and those before it."""
    return _attention(q_THP, k_TKP, v_TKP, each, causal)[0]


def _cut(part_THP: Tensor, each: int) -> Tensor:
    """The whole sequences, [S, L, H, P]. Queries, keys and values may be columns of one array."""
    part_THP = part_THP if part_THP.stride(2) == 1 else part_THP.contiguous()
    sequences = len(part_THP) // each
    return part_THP[: sequences * each].unflatten(0, (sequences, each))


def _joined(part_SLHP: Tensor, tokens: int) -> Tensor:
    part_THP = part_SLHP.flatten(0, 1).contiguous()
    return F.pad(part_THP, (0, 0, 0, 0, 0, tokens - len(part_THP))) if len(part_THP) < tokens else part_THP


def _cudnn(q_SLHP: Tensor, k_SLKP: Tensor, v_SLKP: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    q, k, v = (part.transpose(1, 2) for part in (q_SLHP, k_SLKP, v_SLKP))
    out, sums, *_ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)
    return out.transpose(1, 2), sums.reshape(q.shape[:3]).contiguous()


def _cudnn_backward(
    gradient_SLHP: Tensor, q_SLHP: Tensor, k_SLKP: Tensor, v_SLKP: Tensor, out_SLHP: Tensor, sums: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows = gradient_SLHP, q_SLHP, k_SLKP, v_SLKP, out_SLHP
    gradient, q, k, v, out = (part.transpose(1, 2) for part in rows)
    unused = torch.zeros((), dtype=torch.int64, device=q.device)  # of a dropout that there is not
    # None is no tensor here: there are neither biases nor bounds.
    nothing = None, None, None, q.shape[2], q.shape[2], 0.0, causal
    back = aten._scaled_dot_product_cudnn_attention_backward(
        gradient, q, k, v, out, sums[..., None], unused, unused, *nothing
    )
    to_q, to_k, to_v = (part.transpose(1, 2) for part in back)
    return to_q, to_k, to_v


def _flash(q_SLHP: Tensor, k_SLKP: Tensor, v_SLKP: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    nothing = None, None, q_SLHP.shape[1], q_SLHP.shape[1], 0.0, causal, False
    out, sums, *_ = aten._flash_attention_forward(q_SLHP, k_SLKP, v_SLKP, *nothing)
    return out, sums.contiguous()


def _flash_backward(
    gradient_SLHP: Tensor, q_SLHP: Tensor, k_SLKP: Tensor, v_SLKP: Tensor, out_SLHP: Tensor, sums: Tensor, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    device, length = q_SLHP.device, q_SLHP.shape[1]
    unused = torch.zeros(2, dtype=torch.uint64, device=device), torch.empty(0, device=device)
    place = None, None, length, length, 0.0, causal
    to_q, to_k, to_v = aten._flash_attention_backward(
        gradient_SLHP, q_SLHP, k_SLKP, v_SLKP, out_SLHP, sums, *place, *unused
    )
    return to_q, to_k, to_v


def _kind(q_THP: Tensor, k_TKP: Tensor) -> tuple[torch.device, torch.dtype, int, int, int]:
    return q_THP.device, q_THP.dtype, q_THP.shape[1], k_TKP.shape[1], q_THP.shape[2]


@lru_cache
def _works(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, head_dim: int, causal: bool) -> bool:
    """Whether cuDNN runs these shapes here, and gives what the flash kernel does."""
    generator = torch.Generator(device).manual_seed(0)
    counts = heads, kv_heads, kv_heads, heads
    drawn = torch.randn(2, 250, sum(counts), head_dim, generator=generator, device=device).to(dtype)
    q, k, v, gradient = drawn.split(counts, dim=2)  # columns of one array, which they may be
    gradient = gradient.contiguous()
    expected, sums = _flash(q, k, v, causal)
    wanted = expected, *_flash_backward(gradient, q, k, v, expected, sums, causal)
    try:
        out, sums = _cudnn(q, k, v, causal)
        got = out, *_cudnn_backward(gradient, q, k, v, out, sums, causal)
    except RuntimeError:  # not built in, or not for these shapes
        return False
    # NaN compares as false, and so as a failure.
    return all(bool((a - b).float().norm() < 0.02 * b.float().norm()) for a, b in zip(got, wanted, strict=True))
