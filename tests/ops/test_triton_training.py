"""The training kernels of scan and convolution by Triton's interpreter: values and gradients beside the plain ones."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported

triton = pytest.importorskip("triton")
if isinstance(triton.language.zeros, triton.JITFunction):
    pytest.skip("Triton was imported to compile, not to interpret", allow_module_level=True)

from holotron.ops import fixed  # noqa: E402
from holotron.ops.fixed_packing import FixedPacking, ScanTables  # noqa: E402
from holotron.ops.triton import conv_training, scan_training  # noqa: E402

LENGTHS, TOKENS, CHUNK = (37, 5), 45, 32
NAMES = ("x", "dt", "A", "B", "C", "D")
HEADS, HEAD_DIM, STATE, GROUPS = 4, 20, 24, 2


def packing() -> FixedPacking:
    lengths = np.array(LENGTHS)
    tables = ScanTables.build(lengths, tokens=TOKENS, sequences=4, chunk=CHUNK, chunks=4, taps=3)
    return FixedPacking.build(lengths, tokens=TOKENS, sequences=4, longest=64, scan=tables)


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    # Views of one array, as the convolution leaves them.
    xBC = torch.randn(TOKENS, HEADS * HEAD_DIM + 2 * GROUPS * STATE, generator=generator)
    x, B, C = xBC.split([HEADS * HEAD_DIM, GROUPS * STATE, GROUPS * STATE], dim=1)
    dt = torch.rand(TOKENS, HEADS, generator=generator)
    A, D = -torch.rand(HEADS, generator=generator) - 0.1, torch.randn(HEADS, generator=generator)
    made = x.unflatten(1, (HEADS, -1)), dt, A, B.unflatten(1, (GROUPS, -1)), C.unflatten(1, (GROUPS, -1)), D
    return [each.detach().requires_grad_() for each in made]


@pytest.fixture
def memory_of_nans() -> Iterator[None]:
    """New memory holds what no result may come from: this makes PyTorch fill it with NaN."""
    torch.set_deterministic_debug_mode("error")
    yield
    torch.set_deterministic_debug_mode("default")


@pytest.mark.usefixtures("memory_of_nans")
def test_outputs_and_gradients_are_those_of_the_plain_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks of two tiles; some are half full, and some have no tokens."""
    monkeypatch.setattr(scan_training, "TILE", 16)
    tensors, packed = inputs(), packing()
    expected = fixed.ssd_scan(*tensors, packed)
    got = scan_training.ssd_scan(*tensors, *fixed.chunk_tables(packed.scan), CHUNK)
    used = sum(LENGTHS)
    torch.testing.assert_close(got[:used], expected[:used], rtol=1e-4, atol=1e-4)
    assert not got[used:].any()
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    weights[used:] = 0
    wanted = torch.autograd.grad((expected * weights).sum(), tensors)
    gradients = torch.autograd.grad((got * weights).sum(), tensors)
    for name, one, other in zip(NAMES, gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(("biased", "taps"), [(True, 4), (False, 4), (True, 3)])
def test_the_convolution_and_its_gradients_are_those_of_the_plain_one(
    biased: bool, taps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv_training, "ROWS", 16)  # of several programs, the last with too few tokens
    generator = torch.Generator().manual_seed(2)
    wide = torch.randn(TOKENS, 24, generator=generator)
    x, weight = wide[:, 3:20].detach(), torch.randn(17, taps, generator=generator)
    learned = [x.requires_grad_(), weight.requires_grad_()]
    bias = torch.randn(17, generator=generator).requires_grad_() if biased else None
    learned += [bias] if bias is not None else []
    packed = packing()
    expected = fixed.causal_conv(x, weight, bias, packed)
    got = conv_training.causal_conv(x, weight, bias, packed.scan.same_TJ[:, : taps - 1].contiguous())
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    weights = torch.randn(expected.shape, generator=generator)
    wanted = torch.autograd.grad((expected * weights).sum(), learned)
    for one, other in zip(torch.autograd.grad((got * weights).sum(), learned), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
