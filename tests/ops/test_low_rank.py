"""A frozen linear layer with a low-rank change: the op beside its definition, values and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops import low_rank_linear


def _inputs(passes: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (11, 7), (13, 7), (13,), (3, 7), (13, 3)
    x, weight, bias, A, B = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return x.requires_grad_(passes), weight, bias, A.requires_grad_(), B.requires_grad_()


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_values_and_gradients_are_those_of_the_definition(passes: bool, biased: bool) -> None:
    x, weight, bias, A, B = _inputs(passes)
    got = low_rank_linear(x, weight, bias if biased else None, A, B)
    expected = F.linear(x, weight, bias if biased else None) + (x @ A.T) @ B.T
    torch.testing.assert_close(got, expected)
    learned = [tensor for tensor in (x, A, B) if tensor.requires_grad]
    weights = torch.randn(got.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for one, other in zip(
        torch.autograd.grad((got * weights).sum(), learned),
        torch.autograd.grad((expected * weights).sum(), learned),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_the_frozen_weight_is_all_that_a_second_copy_is_not_kept_of() -> None:
    x, weight, _, A, B = _inputs(True)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        low_rank_linear(x, weight, None, A, B)
    # The input, what the change makes of it, and the weights themselves; nothing of the output's size.
    assert sorted(tuple(t.shape) for t in kept) == sorted([(11, 7), (11, 3), (13, 7), (3, 7), (13, 3)])
