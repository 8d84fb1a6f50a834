"""Linear layers in 8 bits on a GPU at the sizes of the 12B, against the plain ops in float64.

Also a script, for machines without pytest: python tests/ops/test_triton_fp8_gpu.py
"""

import sys
import traceback

import torch

try:
    import pytest

    pytest.importorskip("triton")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs a CUDA device that multiplies 8-bit numbers", allow_module_level=True)
    pytestmark = pytest.mark.gpu
except ImportError:
    pass

from holotron.ops.plain import fp8 as plain
from holotron.ops.triton import fp8

SHAPES = ((22656, 5120), (5120, 10240), (1024, 5120), (5120, 20480), (48, 80))
# Rounding the result to bfloat16 gives 0.0017; the device's sums, of about 14 bits in the worst place, the rest.
ERROR = 6e-3


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").bfloat16()


def relative(ours, exact):
    return float((ours.double() - exact).norm() / exact.norm())


def test_rows_are_quantized():
    for rows, size in ((3, 80), (100, 5120), (2368, 20480)):
        x = draw(rows, size) * torch.logspace(-4, 4, rows, device="cuda")[:, None].bfloat16()
        values, scale = fp8.quantize_rows(x)
        expected, expected_scale = plain.quantize_rows(x)
        torch.testing.assert_close(scale, expected_scale, rtol=1e-6, atol=0)
        # A division that rounds otherwise may move a tie by a step.
        different = values.float() != expected.float()
        assert different.float().mean() < 1e-3
        assert ((values.float() - expected.float()).abs() <= expected.float().abs() / 8 + 2**-9).all()


def test_products_are_near_exact_ones():
    for outputs, inputs in SHAPES:
        weight, scale = plain.quantize_rows(draw(outputs, inputs, seed=1))
        for rows in (1, 17, 100, 128, 129, 2368):
            x = draw(rows, inputs, seed=rows)
            values, x_scale = fp8.quantize_rows(x)
            exact = (values.double() * x_scale.double()[:, None]) @ (weight.double() * scale.double()[:, None]).T
            error = relative(fp8.fp8_linear(x, weight, scale), exact)
            print(f"{outputs} x {inputs}, {rows} rows: relative error {error:.5f}")
            assert error < ERROR


def test_a_row_has_the_same_bits_in_every_small_batch():
    for outputs, inputs in SHAPES:
        weight, scale = plain.quantize_rows(draw(outputs, inputs, seed=1))
        x = draw(fp8.FEW_ROWS, inputs, seed=2)
        together = fp8.fp8_linear(x, weight, scale)
        for rows in (1, 2, 16, 33, 100):
            assert torch.equal(fp8.fp8_linear(x[:rows], weight, scale), together[:rows]), (outputs, inputs, rows)


def test_large_batches_tell_where_bits_differ():
    """The library chooses its tiles by the number of rows: told, and within rounding."""
    for outputs, inputs in SHAPES[:4]:
        weight, scale = plain.quantize_rows(draw(outputs, inputs, seed=1))
        x = draw(4736, inputs, seed=2)
        together = fp8.fp8_linear(x, weight, scale)
        for rows in (256, 1024, 2368):
            alone = fp8.fp8_linear(x[:rows], weight, scale)
            same = float((alone == together[:rows]).float().mean())
            print(f"{outputs} x {inputs}, {rows} rows of 4736: {same:.4%} of the numbers have the same bits")
            assert relative(alone, together[:rows].double()) < ERROR


def main():
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                print("pass", name)
            except Exception:
                failed += 1
                traceback.print_exc()
                print("FAIL", name)
    return failed


if __name__ == "__main__":
    sys.exit(main())
