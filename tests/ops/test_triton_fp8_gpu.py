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
from holotron.ops.triton import fp8, norm

SHAPES = ((22656, 5120), (5120, 10240), (1024, 5120), (5120, 20480), (48, 80))
# Rounding the result to bfloat16 gives 0.0017; the rest is the device's sums, which have about 14 bits. What rounding
# the inputs and weights to 8 bits does is twice as much.
ERROR = 2.5e-2


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").bfloat16()


def relative(ours, exact):
    return float((ours.double() - exact).norm() / exact.norm())


def linear(x, weight, scale):
    return fp8.fp8_linear(*fp8.quantize_rows(x), weight, scale, None)


def assert_same(ours, theirs):
    torch.testing.assert_close(ours.scale_T, theirs.scale_T, rtol=1e-6, atol=0)
    assert torch.equal(ours.values_TI.view(torch.uint8), theirs.values_TI.view(torch.uint8))


def test_rows_are_quantized():
    for rows, size in ((3, 80), (100, 5120), (2368, 20480)):
        x = draw(rows, size) * torch.logspace(-4, 4, rows, device="cuda")[:, None].bfloat16()
        values, scale, _ = fp8.quantize_rows(x)
        expected, expected_scale, _ = plain.quantize_rows(x)
        torch.testing.assert_close(scale, expected_scale, rtol=1e-6, atol=0)
        # A division that rounds otherwise may move a tie by a step.
        different = values.float() != expected.float()
        assert different.float().mean() < 1e-3
        assert ((values.float() - expected.float()).abs() <= expected.float().abs() / 8 + 2**-9).all()


def test_fused_ops_have_the_bits_of_separate_ones():
    for rows in (3, 100, 2368):
        x, delta, weight = draw(rows, 5120), draw(rows, 5120, seed=1), draw(5120, seed=2)
        total, fused = fp8.add_rms_norm_fp8(x, delta, weight, 1e-5)
        expected, normed = norm.add_rms_norm(x, delta, weight, 1e-5)
        assert torch.equal(total, expected)
        assert_same(fused, fp8.quantize_rows(normed))
        up = draw(rows, 20480)
        assert_same(fp8.relu_squared_fp8(up), fp8.quantize_rows(norm.relu_squared(up)))
        y, gate, weight = draw(rows, 10240), draw(rows, 22656, seed=1)[:, :10240], draw(10240, seed=2)
        separate = fp8.quantize_rows(norm.gated_rms_norm(y, gate, weight, 1e-5, 8))
        fused = fp8.gated_rms_norm_fp8(y, gate, weight, 1e-5, 8)
        # The sum of a group is taken in another order.
        assert (fused.values_TI.float() != separate.values_TI.float()).float().mean() < 1e-2


def test_products_are_near_exact_ones():
    for outputs, inputs in SHAPES:
        weight, scale, _ = plain.quantize_rows(draw(outputs, inputs, seed=1))
        for rows in (1, 17, 100, 128, 129, 2368):
            x = draw(rows, inputs, seed=rows)
            values, x_scale, _ = fp8.quantize_rows(x)
            exact = (values.double() * x_scale.double()[:, None]) @ (weight.double() * scale.double()[:, None]).T
            error = relative(linear(x, weight, scale), exact)
            print(f"{outputs} x {inputs}, {rows} rows: relative error {error:.5f}")
            assert error < ERROR


def test_batches_tell_where_bits_differ():
    """The library chooses its tiles by the number of rows: told, and within rounding."""
    for outputs, inputs in SHAPES[:4]:
        weight, scale, _ = plain.quantize_rows(draw(outputs, inputs, seed=1))
        x = draw(4736, inputs, seed=2)
        together, told = linear(x, weight, scale), []
        for rows in (1, 2, 8, 16, 33, 64, 100, 128, 256, 1024, 2368):
            alone = linear(x[:rows], weight, scale)
            told.append(f"{rows}: {float((alone == together[:rows]).float().mean()):.2%}")
            assert relative(alone, together[:rows].double()) < ERROR
        print(f"{outputs} x {inputs}, share of numbers with the same bits as in 4736 rows: {', '.join(told)}")


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
