"""Scan, convolution and attention as training runs them in 16 bits on a GPU, beside the plain ones in 32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from holotron.ops import fixed
from holotron.ops.fixed_packing import FixedPacking, ScanTables

pytestmark = pytest.mark.gpu

# Heads, head dim, state size, groups, chunk.
SHAPES = {"12b": (16, 80, 128, 2, 128), "nano": (12, 64, 64, 2, 64)}


def packing(lengths: tuple[int, ...], tokens: int, chunk: int) -> FixedPacking:
    counted = np.array(lengths)
    tables = ScanTables.build(counted, tokens=tokens, sequences=8, chunk=chunk, chunks=tokens // chunk + 4, taps=3)
    moved = {name: value.cuda() for name, value in vars(tables).items()}
    return FixedPacking.build(counted, tokens=tokens, sequences=8, longest=tokens, scan=ScanTables(**moved))


def tensors(shape: tuple[int, ...], tokens: int) -> list[Tensor]:
    heads, head_dim, state, groups, _ = shape
    generator = torch.Generator("cuda").manual_seed(0)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, device="cuda")

    xBC = draw(tokens, heads * head_dim + 2 * groups * state).bfloat16()
    x, B, C = xBC.split([heads * head_dim, groups * state, groups * state], dim=1)
    dt = torch.nn.functional.softplus(draw(tokens, heads) - 3)
    A, D = -draw(heads).abs() * 4 - 0.5, draw(heads)
    made = x.unflatten(1, (heads, -1)), dt, A, B.unflatten(1, (groups, -1)), C.unflatten(1, (groups, -1)), D
    return [each.detach().requires_grad_() for each in made]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_sixteen_bits_are_near_thirty_two(shape: tuple[int, ...]) -> None:
    lengths, tokens = (1000, 37, 700, 128, 1), 2048
    packed, narrow = packing(lengths, tokens, shape[-1]), tensors(shape, tokens)
    wide = [each.detach().float().requires_grad_() for each in narrow]
    weights = torch.randn(tokens, *shape[:2], generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    weights[sum(lengths) :] = 0
    got, expected = fixed.ssd_scan(*narrow, packed), fixed.ssd_scan(*wide, packed)
    used = slice(sum(lengths))
    assert (got[used].float() - expected[used]).norm() < 0.01 * expected[used].norm()
    assert not got[sum(lengths) :].any()
    gradients = torch.autograd.grad((got.float() * weights.bfloat16().float()).sum(), narrow)
    exact = torch.autograd.grad((expected * weights.bfloat16().float()).sum(), wide)
    for name, one, other in zip(("x", "dt", "A", "B", "C", "D"), gradients, exact, strict=True):
        error = (one.float() - other).norm() / other.norm()
        assert error < 0.02, f"{name} is {error:.4f} off"


@pytest.mark.parametrize("biased", [True, False])
def test_the_convolution_in_sixteen_bits_is_near_thirty_two(biased: bool) -> None:
    lengths, tokens, generator = (1000, 37, 700, 128, 1), 2048, torch.Generator("cuda").manual_seed(0)
    packed = packing(lengths, tokens, 64)
    wide = torch.randn(tokens, 3000, generator=generator, device="cuda").bfloat16()
    drawn = wide[:, 500:1800], torch.randn(1300, 4, generator=generator, device="cuda")
    drawn += (torch.randn(1300, generator=generator, device="cuda"),) if biased else ()
    narrow, exact = (
        [convert(each.detach()).requires_grad_() for each in drawn] for convert in (Tensor.clone, Tensor.float)
    )
    weights = torch.randn(tokens, 1300, generator=generator, device="cuda").bfloat16().float()
    results = [fixed.causal_conv(*each, *(() if biased else (None,)), packed) for each in (narrow, exact)]
    near(results[0], results[1], 0.01)
    gradients = [
        torch.autograd.grad((result.float() * weights).sum(), each)
        for result, each in zip(results, (narrow, exact), strict=True)
    ]
    for one, other in zip(*gradients, strict=True):
        near(one, other, 0.01)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_one_sequence_alone_is_attended_as_one_of_several(head_dim: int) -> None:
    used, tokens, generator = 1500, 2048, torch.Generator("cuda").manual_seed(0)
    q, k, v = (
        torch.randn(tokens, heads, head_dim, generator=generator, device="cuda").bfloat16().requires_grad_()
        for heads in (10, 2, 2)
    )
    weights = torch.randn(tokens, 10, head_dim, generator=generator, device="cuda")
    weights[used:] = 0
    results = []
    for sequences in (1, 2):
        build = FixedPacking.build(np.array([used]), tokens=tokens, sequences=sequences, longest=tokens)
        packed = FixedPacking(build.bounds_S.cuda(), build.longest, None, build.each)
        out = fixed.attention(q, k, v, packed, causal=True)
        results.append((out[:used], *torch.autograd.grad((out * weights).sum(), (q, k, v))))
    for one, other in zip(*results, strict=True):
        near(one, other, 0.01)


@pytest.mark.parametrize("room", [0, 60])
def test_images_of_one_size_are_attended_as_any_others(room: int) -> None:
    """Tiles of the 12B's head size, as columns of one array, with and without padding behind them."""
    images, each, heads, generator = 3, 130, 4, torch.Generator("cuda").manual_seed(0)
    tokens = images * each + room
    qkv = torch.randn(tokens, 3, heads, 80, generator=generator, device="cuda").bfloat16().requires_grad_()
    weights = torch.randn(tokens, heads, 80, generator=generator, device="cuda")
    weights[images * each :] = 0
    results = []
    for length in (0, each):
        sizes = np.array([each] * images)
        build = FixedPacking.build(sizes, tokens=tokens, sequences=images + 1, longest=each, each=length)
        packed = FixedPacking(build.bounds_S.cuda(), build.longest, None, build.each)
        out = fixed.attention(*qkv.unbind(1), packed, causal=False)
        results.append((out[: images * each], *torch.autograd.grad((out * weights).sum(), (qkv,))))
    for one, other in zip(*results, strict=True):
        near(one, other, 0.01)


def near(got: Tensor, expected: Tensor, share: float) -> None:
    error = (got.float() - expected.float()).norm() / expected.float().norm()
    assert error < share, f"{error:.4f} off"
