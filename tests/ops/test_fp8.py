"""Linear layers in 8 bits: what is rounded, and that nothing else is."""

import torch

from holotron.ops.plain.fp8 import FP8, LARGEST, QuantizedRows, quantize_rows
from holotron.ops.plain.fp8 import fp8_linear as multiply


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def fp8_linear(x, weight, scale, bias=None):
    return multiply(*quantize_rows(x), weight, scale, bias)


def test_rows_come_back_within_half_a_step():
    x = draw(7, 96) * torch.logspace(-30, 20, 7)[:, None]
    values, scale, _ = quantize_rows(x)
    assert values.dtype == FP8
    assert torch.equal(values.float().abs().amax(1), torch.full((7,), LARGEST))
    back = values.float() * scale[:, None]
    # Three bits behind the first: 2⁻⁴ of a number, or half of the smallest step, which is 2⁻⁹.
    bound = torch.maximum(x.abs() * 2.0**-4, scale[:, None] * 2.0**-10)
    assert ((back - x).abs() <= bound * 1.0001).all()


def test_zeros_stay_zeros_and_what_is_not_a_number_shows():
    values, scale, _ = quantize_rows(torch.tensor([[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]]))
    assert values[0].float().tolist() == [0, 0]
    assert scale[0] > 0
    assert not scale[1:].isfinite().any()


def test_a_product_is_that_of_the_rounded_numbers():
    x, weight, bias = draw(5, 64), draw(48, 64, seed=1) * 0.1, draw(48, seed=2)
    values, scale, _ = quantize_rows(weight)
    x_values, x_scale, _ = quantize_rows(x)
    exact = (x_values.double() * x_scale.double()[:, None]) @ (values.double() * scale.double()[:, None]).T + bias
    assert torch.allclose(fp8_linear(x, values, scale, bias).double(), exact, rtol=1e-5, atol=1e-6)
    full = torch.nn.functional.linear(x, weight, bias)
    assert (fp8_linear(x, values, scale, bias) - full).norm() < 0.05 * full.norm()


def test_a_row_does_not_depend_on_its_batch():
    weight, scale, _ = quantize_rows(draw(32, 48, seed=1))
    x = draw(6, 48) * torch.logspace(-3, 3, 6)[:, None]
    together = fp8_linear(x, weight, scale)
    assert torch.allclose(together, torch.cat([fp8_linear(row[None], weight, scale) for row in x]), rtol=1e-6)


def test_rows_are_written_into_a_part():
    x = draw(5, 16)
    out = QuantizedRows.empty_like(x)
    quantize_rows(x[:2], out.part(0, 2))
    quantize_rows(x[2:], out.part(2))
    for ours, theirs in zip(out[:2], quantize_rows(x)[:2], strict=True):
        assert torch.equal(ours.float(), theirs.float())
