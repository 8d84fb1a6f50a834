"""Causal attention over all tokens as one sequence, by cuDNN where it works, as an op that compilers leave alone.

cuDNN is twice as fast as the flash kernel on Hopper, but not where it is told bounds. Padding behind a sequence sees it
and is not seen by it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@torch.library.custom_op("holotron::whole_attention", mutates_args=())
def _attention(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor) -> tuple[Tensor, Tensor]:
    way = _cudnn if _works(q_THP.device, q_THP.dtype, q_THP.shape[1], k_TKP.shape[1], q_THP.shape[2]) else _flash
    return way(q_THP, k_TKP, v_TKP)


@_attention.register_fake
def _(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor) -> tuple[Tensor, Tensor]:
    return q_THP.new_empty(q_THP.shape), q_THP.new_empty(q_THP.shape[1], len(q_THP), dtype=torch.float32)


@torch.library.custom_op("holotron::whole_attention_backward", mutates_args=())
def _backward(
    gradient_THP: Tensor, q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, out_THP: Tensor, sums_HT: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    works = _works(q_THP.device, q_THP.dtype, q_THP.shape[1], k_TKP.shape[1], q_THP.shape[2])
    way = _cudnn_backward if works else _flash_backward
    return way(gradient_THP.contiguous(), q_THP, k_TKP, v_TKP, out_THP, sums_HT)


@_backward.register_fake
def _(gradient_THP: Tensor, q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q_THP.new_empty(q_THP.shape), k_TKP.new_empty(k_TKP.shape), v_TKP.new_empty(v_TKP.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, gradient_THP: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _backward(gradient_THP, *ctx.saved_tensors)


_attention.register_autograd(_gradient, setup_context=_keep)


def whole_attention(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor) -> Tensor:
    """Each token attends to itself and all before it."""
    out: Tensor = _attention(q_THP.contiguous(), k_TKP.contiguous(), v_TKP.contiguous())[0]
    return out


def _cudnn(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor) -> tuple[Tensor, Tensor]:
    q, k, v = (part[None].transpose(1, 2) for part in (q_THP, k_TKP, v_TKP))
    out, sums, *_ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True, False)
    return out[0].transpose(0, 1).contiguous(), sums.reshape(q_THP.shape[1], len(q_THP)).contiguous()


def _cudnn_backward(
    gradient_THP: Tensor, q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, out_THP: Tensor, sums_HT: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    rows = gradient_THP, q_THP, k_TKP, v_TKP, out_THP
    gradient, q, k, v, out = (part[None].transpose(1, 2) for part in rows)
    unused = torch.zeros((), dtype=torch.int64, device=q.device)  # of a dropout that there is not
    # None is no tensor here: there are neither biases nor bounds.
    nothing = None, None, None, len(q_THP), len(q_THP), 0.0, True
    back = aten._scaled_dot_product_cudnn_attention_backward(
        gradient, q, k, v, out, sums_HT[None, :, :, None], unused, unused, *nothing
    )
    to_q, to_k, to_v = (part[0].transpose(0, 1).contiguous() for part in back)
    return to_q, to_k, to_v


def _flash(q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor) -> tuple[Tensor, Tensor]:
    bounds, count = torch.tensor([0, len(q_THP)], dtype=torch.int32, device=q_THP.device), len(q_THP)
    out, sums, *_ = aten._flash_attention_forward(q_THP, k_TKP, v_TKP, bounds, bounds, count, count, 0.0, True, False)
    return out, sums.reshape(q_THP.shape[1], count)


def _flash_backward(
    gradient_THP: Tensor, q_THP: Tensor, k_TKP: Tensor, v_TKP: Tensor, out_THP: Tensor, sums_HT: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    bounds, count = torch.tensor([0, len(q_THP)], dtype=torch.int32, device=q_THP.device), len(q_THP)
    unused = torch.zeros(2, dtype=torch.uint64, device=q_THP.device), torch.empty(0, device=q_THP.device)
    place = bounds, bounds, count, count, 0.0, True
    to_q, to_k, to_v = aten._flash_attention_backward(
        gradient_THP, q_THP, k_TKP, v_TKP, out_THP, sums_HT, *place, *unused
    )
    return to_q, to_k, to_v


@lru_cache
def _works(device: torch.device, dtype: torch.dtype, heads: int, kv_heads: int, head_dim: int) -> bool:
    """Whether cuDNN runs these shapes here, and gives what the flash kernel does."""
    generator = torch.Generator(device).manual_seed(0)
    q, k, v, gradient = (
        torch.randn(256, count, head_dim, generator=generator, device=device).to(dtype)
        for count in (heads, kv_heads, kv_heads, heads)
    )
    expected, sums = _flash(q, k, v)
    wanted = expected, *_flash_backward(gradient, q, k, v, expected, sums)
    try:
        out, sums = _cudnn(q, k, v)
        got = out, *_cudnn_backward(gradient, q, k, v, out, sums)
    except RuntimeError:  # not built in, or not for these shapes
        return False
    # NaN compares as false, and so as a failure.
    return all(bool((a - b).float().norm() < 0.02 * b.float().norm()) for a, b in zip(got, wanted, strict=True))
