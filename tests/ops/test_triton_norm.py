"""Norms and the squared ReLU in Triton, run by its interpreter, against the plain ops."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported

triton = pytest.importorskip("triton")
if isinstance(triton.language.zeros, triton.JITFunction):
    pytest.skip("Triton was imported to compile, not to interpret", allow_module_level=True)

from holotron.ops.plain import norm as plain  # noqa: E402
from holotron.ops.triton import norm  # noqa: E402

EPS = 1e-5
SIZES = [1, 7, 64, 2688, 5120]
DTYPES = [torch.float32, torch.bfloat16]


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_near(ours, theirs):
    """Equal up to the order of summation; 16-bit results up to their last bit, which the interpreter does not round."""
    assert ours.dtype == theirs.dtype
    tolerance = 2e-6 if ours.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=1e-30)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(size, dtype):
    x, weight = draw(3, size, dtype=dtype), draw(size, seed=1, dtype=dtype)
    assert_near(norm.rms_norm(x, weight, EPS), plain.rms_norm(x, weight, EPS))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_add_rms_norm(size, dtype):
    """The norm is that of the rounded sum."""
    x, delta = draw(3, size, dtype=dtype), draw(3, size, seed=1, dtype=dtype)
    weight = draw(size, seed=2)
    total, y = norm.add_rms_norm(x, delta, weight, EPS)
    assert_near(total, x + delta)
    assert_near(y, plain.rms_norm(total, weight, EPS))


def test_add_narrow_delta_to_wide_rows():
    x, delta, weight = draw(2, 40), draw(2, 40, seed=1, dtype=torch.bfloat16), draw(40, seed=2)
    total, y = norm.add_rms_norm(x, delta, weight, EPS)
    assert torch.equal(total, x + delta)
    assert_near(y, plain.rms_norm(x + delta, weight, EPS))


@pytest.mark.parametrize(("size", "groups"), [(12, 1), (12, 3), (64, 2), (10240, 8)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gated_rms_norm(size, groups, dtype):
    """The gate is a slice of a wider projection."""
    x, weight = draw(3, size, dtype=dtype), draw(size, seed=1, dtype=dtype)
    gate = draw(3, size + 9, seed=2, dtype=dtype)[:, 3 : 3 + size]
    assert_near(norm.gated_rms_norm(x, gate, weight, EPS, groups), plain.gated_rms_norm(x, gate, weight, EPS, groups))


def test_gate_of_large_values():
    x, weight = torch.ones(1, 4), torch.ones(4)
    gate = torch.tensor([[-1e4, -100.0, 0.0, 1e4]])
    assert_near(norm.gated_rms_norm(x, gate, weight, EPS, 1), plain.gated_rms_norm(x, gate, weight, EPS, 1))


@pytest.mark.parametrize("size", [1, 7, 4096, 5000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_relu_squared(size, dtype):
    x = draw(3, size, dtype=dtype)
    assert_near(norm.relu_squared(x), plain.relu_squared(x))


def test_views_and_leading_axes():
    """Rows that lie apart, more than two axes, none, and columns that lie apart (which are copied)."""
    weight = draw(6, seed=1)
    for x in (draw(4, 10)[:, 2:8], draw(2, 3, 6), draw(2, 5, 6)[:, 1:4], draw(6), draw(6, 4).T, draw(0, 6)):
        assert_near(norm.rms_norm(x, weight, EPS), plain.rms_norm(x, weight, EPS))
        assert_near(norm.relu_squared(x), plain.relu_squared(x))
        assert_near(norm.add_rms_norm(x, x, weight, EPS)[1], plain.rms_norm(x + x, weight, EPS))
