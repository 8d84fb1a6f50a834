"""Norms and experts against their formulas, one element at a time."""

import pytest
import torch
import torch.nn.functional as F

from holotron.ops import gated_rms_norm, rms_norm, route, run_experts


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_rms_norm():
    x, weight = normal(3, 8), normal(8, seed=1)
    expected = x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    torch.testing.assert_close(rms_norm(x, weight, 1e-5), expected)


def test_rms_norm_rounds_once():
    x, weight = normal(4, 64, dtype=torch.float32).bfloat16(), normal(64, seed=1, dtype=torch.float32).bfloat16()
    assert torch.equal(rms_norm(x, weight, 1e-5), rms_norm(x.float(), weight.float(), 1e-5).bfloat16())


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gated_rms_norm_gates_before_it_norms_each_group(groups):
    x, gate, weight = normal(3, 8), normal(3, 8, seed=1), normal(8, seed=2)
    size = 8 // groups
    expected = torch.empty_like(x)
    for token in range(3):
        for group in range(groups):
            part = slice(group * size, (group + 1) * size)
            gated = x[token, part] * gate[token, part] * gate[token, part].sigmoid()
            expected[token, part] = gated / (gated.pow(2).mean() + 1e-5).sqrt() * weight[part]
    torch.testing.assert_close(gated_rms_norm(x, gate, weight, 1e-5, groups), expected)


def test_gradients_of_norms():
    tensors = [normal(2, 4, seed=s).requires_grad_() for s in (0, 1)] + [normal(4, seed=2).requires_grad_()]
    assert torch.autograd.gradcheck(lambda x, g, w: gated_rms_norm(x, g, w, 1e-5, 2), tensors)
    assert torch.autograd.gradcheck(lambda x, w: rms_norm(x, w, 1e-5), (tensors[0], tensors[2]))


def test_correction_moves_the_choice_but_not_the_weights():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    chosen, weights = route(logits, torch.zeros(4), 2, normalize=False)
    assert chosen.tolist() == [[0, 1]]
    moved, moved_weights = route(logits, torch.tensor([0.0, 0, 0, 5.0]), 2, normalize=False)
    assert sorted(moved[0].tolist()) == [0, 3]
    assert moved_weights[0, moved[0].tolist().index(3)] == torch.sigmoid(torch.tensor(-1.0))
    _, scaled = route(logits, torch.zeros(4), 2, normalize=True, scaling=2.5)
    assert scaled.sum().item() == pytest.approx(2.5)
    assert torch.allclose(scaled, weights / weights.sum() * 2.5)


def test_experts_come_from_the_best_groups_only():
    logits = torch.tensor([[3.0, -9.0, 2.0, 2.0]])  # group 0 has the best expert, group 1 the better pair
    chosen, _ = route(logits, torch.zeros(4), 2, groups=2, groups_per_token=1)
    assert sorted(chosen[0].tolist()) == [2, 3]


@pytest.mark.parametrize("experts_per_token", [1, 3])
def test_run_experts(experts_per_token):
    x, up, down = normal(5, 4), normal(6, 7, 4, seed=1), normal(6, 4, 7, seed=2)
    chosen = torch.stack(
        [torch.randperm(6, generator=torch.Generator().manual_seed(t))[:experts_per_token] for t in range(5)]
    )
    weights = normal(5, experts_per_token, seed=3)
    expected = torch.zeros_like(x)
    for token in range(5):
        for expert, weight in zip(chosen[token], weights[token], strict=True):
            expected[token] += weight * (down[expert] @ F.relu(up[expert] @ x[token]).square())
    torch.testing.assert_close(run_experts(x, chosen, weights, up, down), expected)


def test_gradients_of_experts():
    tensors = [normal(3, 2), normal(3, 2, seed=3), normal(4, 3, 2, seed=1), normal(4, 2, 3, seed=2)]
    chosen = torch.tensor([[0, 1], [2, 0], [1, 0]])
    tensors = [t.requires_grad_() for t in tensors]
    assert torch.autograd.gradcheck(lambda x, w, up, down: run_experts(x, chosen, w, up, down), tensors)
