"""Attention inside given bounds by the library's flash kernel, as an op that compilers leave alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


@torch.library.custom_op("holotron::bounded_attention", mutates_args=())
def _attention(
    q_THP: Tensor, k_THP: Tensor, v_THP: Tensor, bounds_S: Tensor, longest: int, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out, sums, state, unused = _flash(q_THP, k_THP, v_THP, bounds_S, longest, causal)
    # A custom op may not return what it was given, nor one tensor twice.
    return out, sums, state.clone(), unused.clone()


@_attention.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(part) for part in _flash(*arguments))


def _flash(
    q_THP: Tensor, k_THP: Tensor, v_THP: Tensor, bounds_S: Tensor, longest: int, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return aten._flash_attention_forward(q_THP, k_THP, v_THP, bounds_S, bounds_S, longest, longest, 0.0, causal, False)[
        :4
    ]


@torch.library.custom_op("holotron::bounded_attention_backward", mutates_args=())
def _backward(
    gradient: Tensor,
    q_THP: Tensor,
    k_THP: Tensor,
    v_THP: Tensor,
    out_THP: Tensor,
    sums: Tensor,
    bounds_S: Tensor,
    longest: int,
    causal: bool,
    state: Tensor,
    unused: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    bounds = bounds_S, bounds_S, longest, longest
    q, k, v = aten._flash_attention_backward(
        gradient.contiguous(), q_THP, k_THP, v_THP, out_THP, sums, *bounds, 0.0, causal, state, unused
    )
    return q, k, v


@_backward.register_fake
def _(gradient: Tensor, q_THP: Tensor, k_THP: Tensor, v_THP: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q_THP), torch.empty_like(k_THP), torch.empty_like(v_THP)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, bounds, ctx.longest, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, bounds, *output)
    ctx.mark_non_differentiable(*output[1:])


def _gradient(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, bounds, out, sums, state, unused = ctx.saved_tensors
    back = _backward(gradient, q, k, v, out, sums, bounds, ctx.longest, ctx.causal, state, unused)
    return *back, None, None, None


_attention.register_autograd(_gradient, setup_context=_keep)


def bounded_attention(
    q_THP: Tensor, k_THP: Tensor, v_THP: Tensor, bounds_S: Tensor, longest: int, causal: bool
) -> Tensor:
    """Attention inside each [bounds[i], bounds[i+1]); `longest` is the most tokens between two bounds."""
    return _attention(q_THP.contiguous(), k_THP.contiguous(), v_THP.contiguous(), bounds_S, longest, causal)[0]
