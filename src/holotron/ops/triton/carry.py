"""The recurrence between chunks with its gradient: one program per sequence, head and slice of the state."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512


@triton.jit
def _forward(kept, added, entering, first_S, counts_S, H, V: tl.constexpr, BLOCK: tl.constexpr):
    sequence, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    lanes = part * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < V
    first, count = tl.load(first_S + sequence), tl.load(counts_S + sequence)
    state = tl.zeros((BLOCK,), tl.float32)
    for chunk in range(first, first + count):
        at = (chunk * H + head).to(tl.int64)
        tl.store(entering + at * V + lanes, state, mask=inside)
        state = state * tl.load(kept + at) + tl.load(added + at * V + lanes, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _backward(
    kept, entering, grad_entering, grad_added, grad_kept, first_S, counts_S, H, V: tl.constexpr, BLOCK: tl.constexpr
):
    sequence, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    parts = tl.num_programs(2)
    lanes = part * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < V
    first, count = tl.load(first_S + sequence), tl.load(counts_S + sequence)
    grad = tl.zeros((BLOCK,), tl.float32)  # of what the chunk leaves
    for back in range(count):
        at = ((first + count - 1 - back) * H + head).to(tl.int64)
        tl.store(grad_added + at * V + lanes, grad, mask=inside)
        state = tl.load(entering + at * V + lanes, mask=inside, other=0.0).to(tl.float32)
        tl.store(grad_kept + at * parts + part, tl.sum(state * grad))
        grad = grad * tl.load(kept + at) + tl.load(grad_entering + at * V + lanes, mask=inside, other=0.0).to(
            tl.float32
        )


def carry_into(entering_CHPN: Tensor, kept_CH: Tensor, added_CHPN: Tensor, first_S: Tensor, counts_S: Tensor) -> None:
    """Write the state that enters each chunk of a sequence; those of other chunks are left as they are."""
    heads, values = kept_CH.shape[1], added_CHPN.shape[2] * added_CHPN.shape[3]
    grid = (len(first_S), heads, triton.cdiv(values, BLOCK))
    _forward[grid](
        kept_CH.contiguous(), added_CHPN.contiguous(), entering_CHPN, first_S, counts_S, heads, values, BLOCK
    )


def carry_backward_into(
    grad_added: Tensor, kept_CH: Tensor, entering_CHPN: Tensor, grad_CHPN: Tensor, first_S: Tensor, counts_S: Tensor
) -> Tensor:
    """Write the gradients of what the chunks of sequences add; those of what all chunks keep."""
    heads, values = kept_CH.shape[1], entering_CHPN.shape[2] * entering_CHPN.shape[3]
    parts = triton.cdiv(values, BLOCK)
    grad_kept = kept_CH.new_zeros((*kept_CH.shape, parts))
    grid = (len(first_S), heads, parts)
    _backward[grid](
        kept_CH.contiguous(),
        entering_CHPN,
        grad_CHPN.contiguous(),
        grad_added,
        grad_kept,
        first_S,
        counts_S,
        heads,
        values,
        BLOCK,
    )
    return grad_kept.sum(-1)


@torch.library.custom_op("holotron::carry", mutates_args=())
def carry(kept_CH: Tensor, added_CHPN: Tensor, first_S: Tensor, counts_S: Tensor) -> Tensor:
    """holotron.ops.plain.carry.carry"""
    entering = torch.zeros_like(added_CHPN, memory_format=torch.contiguous_format)
    carry_into(entering, kept_CH, added_CHPN, first_S, counts_S)
    return entering


@torch.library.custom_op("holotron::carry_backward", mutates_args=())
def carry_backward(
    kept_CH: Tensor, entering_CHPN: Tensor, grad_CHPN: Tensor, first_S: Tensor, counts_S: Tensor
) -> tuple[Tensor, Tensor]:
    grad_added = torch.zeros_like(entering_CHPN)
    return carry_backward_into(grad_added, kept_CH, entering_CHPN, grad_CHPN, first_S, counts_S), grad_added


@carry.register_fake
def _(kept_CH: Tensor, added_CHPN: Tensor, first_S: Tensor, counts_S: Tensor) -> Tensor:
    return torch.empty_like(added_CHPN, memory_format=torch.contiguous_format)


@carry_backward.register_fake
def _(
    kept_CH: Tensor, entering_CHPN: Tensor, grad_CHPN: Tensor, first_S: Tensor, counts_S: Tensor
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(kept_CH), torch.empty_like(entering_CHPN)


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    kept_CH, _, first_S, counts_S = inputs
    ctx.save_for_backward(kept_CH, output, first_S, counts_S)


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad_CHPN: Tensor) -> tuple[Tensor | None, ...]:
    kept_CH, entering_CHPN, first_S, counts_S = ctx.saved_tensors  # type: ignore[attr-defined]
    grad_kept, grad_added = carry_backward(kept_CH, entering_CHPN, grad_CHPN, first_S, counts_S)
    return grad_kept, grad_added, None, None


carry.register_autograd(_gradient, setup_context=_keep)
