"""A frozen linear layer with a low-rank change, as one op with its gradient.

The change is computed first and the large product added to it: what the change costs is then one write of the output,
not three passes over it. Frozen weights get no gradient, and nothing is kept for one.

Shapes: T tokens, I inputs, O outputs, R rank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@torch.library.custom_op("holotron::low_rank_linear", mutates_args=())
def _linear(
    x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, A_RI: Tensor, B_OR: Tensor
) -> tuple[Tensor, Tensor]:
    low_TR = x_TI @ A_RI.T
    return F.linear(low_TR, B_OR, bias_O).addmm_(x_TI, weight_OI.T), low_TR


@_linear.register_fake
def _(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, A_RI: Tensor, B_OR: Tensor) -> tuple[Tensor, Tensor]:
    return x_TI.new_empty(len(x_TI), len(weight_OI)), x_TI.new_empty(len(x_TI), len(A_RI))


@torch.library.custom_op("holotron::low_rank_linear_backward", mutates_args=())
def _backward(
    gradient_TO: Tensor, x_TI: Tensor, low_TR: Tensor, weight_OI: Tensor, A_RI: Tensor, B_OR: Tensor, passes: bool
) -> tuple[Tensor, Tensor, Tensor]:
    gradient_TO = gradient_TO.contiguous()
    low_gradient_TR = gradient_TO @ B_OR
    back_TI = (low_gradient_TR @ A_RI).addmm_(gradient_TO, weight_OI) if passes else x_TI.new_empty(0)
    return back_TI, low_gradient_TR.T @ x_TI, gradient_TO.T @ low_TR


@_backward.register_fake
def _(
    gradient_TO: Tensor, x_TI: Tensor, low_TR: Tensor, weight_OI: Tensor, A_RI: Tensor, B_OR: Tensor, passes: bool
) -> tuple[Tensor, Tensor, Tensor]:
    back = x_TI.new_empty(x_TI.shape) if passes else x_TI.new_empty(0)
    return back, A_RI.new_empty(A_RI.shape), B_OR.new_empty(B_OR.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x_TI, weight_OI, _, A_RI, B_OR = inputs
    ctx.save_for_backward(x_TI, output[1], weight_OI, A_RI, B_OR)
    ctx.mark_non_differentiable(output[1])


def _gradient(ctx: Any, gradient_TO: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    passes = ctx.needs_input_grad[0]
    back_TI, A_RI, B_OR = _backward(gradient_TO, *ctx.saved_tensors, passes)
    return back_TI if passes else None, None, None, A_RI, B_OR


_linear.register_autograd(_gradient, setup_context=_keep)


def low_rank_linear(x_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, A_RI: Tensor, B_OR: Tensor) -> Tensor:
    """W x + b + B (A x), all of one type; gradients for x, A and B alone."""
    return _linear(x_TI, weight_OI, bias_O, A_RI, B_OR)[0]
