"""Linear layers in 8 bits in Triton, run by its interpreter, against the plain ops."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported

triton = pytest.importorskip("triton")
if isinstance(triton.language.zeros, triton.JITFunction):
    pytest.skip("Triton was imported to compile, not to interpret", allow_module_level=True)

from holotron.ops.plain import fp8 as plain  # noqa: E402
from holotron.ops.triton import fp8  # noqa: E402


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_near(ours, theirs):
    """The same bits, but where the interpreter loses the carry of what it rounds up to a power of two."""
    expected = theirs.values_TI.float()
    torch.testing.assert_close(ours.scale_T, theirs.scale_T, rtol=1e-5, atol=0)
    near = (ours.values_TI.float() - expected).abs() <= expected.abs() / 8
    assert near[expected.abs().log2() % 1 != 0].float().mean() > 0.99


def test_rows_are_quantized():
    x = draw(9, 112)[:, :96] * torch.logspace(-4, 4, 9)[:, None]
    x[3] = 0
    assert_near(fp8.quantize_rows(x), plain.quantize_rows(x))
    out = plain.QuantizedRows.empty_like(x)
    fp8.quantize_rows(x[:4], out.part(0, 4))
    fp8.quantize_rows(x[4:], out.part(4))
    assert_near(out, plain.quantize_rows(x))


def test_what_comes_before_is_fused():
    x, delta, weight = draw(3, 96), draw(3, 96, seed=1), draw(96, seed=2)
    assert_near(fp8.relu_squared_fp8(x), plain.relu_squared_fp8(x))
    total, rows = fp8.add_rms_norm_fp8(x, delta, weight, 1e-5)
    expected, expected_rows = plain.add_rms_norm_fp8(x, delta, weight, 1e-5)
    torch.testing.assert_close(total, expected)
    assert_near(rows, expected_rows)
    for groups in (1, 3):
        args = (x, delta, weight, 1e-5, groups)
        assert_near(fp8.gated_rms_norm_fp8(*args), plain.gated_rms_norm_fp8(*args))
