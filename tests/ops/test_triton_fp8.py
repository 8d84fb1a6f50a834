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


def test_rows_are_quantized():
    x = draw(9, 112)[:, :96] * torch.logspace(-4, 4, 9)[:, None]
    x[3] = 0
    values, scale = fp8.quantize_rows(x)
    expected, expected_scale = plain.quantize_rows(x)
    torch.testing.assert_close(scale, expected_scale)
    # The interpreter loses the carry of what it rounds up to a power of two; a device does not.
    carried = expected.float().abs().log2() % 1 == 0
    assert torch.equal(values.float()[~carried], expected.float()[~carried])


@pytest.mark.parametrize(("outputs", "inputs", "rows"), [(80, 96, 19), (144, 304, 3)])
@pytest.mark.parametrize("parts", [1, 2, None])
def test_few_rows(outputs, inputs, rows, parts):
    weight, weight_scale = plain.quantize_rows(draw(outputs, inputs, seed=1))
    values, scale = plain.quantize_rows(draw(rows, inputs, seed=2))
    exact = (values.double() * scale.double()[:, None]) @ (weight.double() * weight_scale.double()[:, None]).T
    config = fp8.FewRowsConfig(64, 64, 4, 2, parts=parts)
    out = fp8.multiply_few_rows(values, scale, weight, weight_scale, torch.float32, config=config)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-4)
