"""The compiled training forward on a GPU, in 16 bits, beside plain scoring in 32."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from holotron.model.initialize import random_model
from holotron.train import forward
from holotron.train.batches import Packer

from .samples import qwen_config
from .test_forward import BUDGET, CONFIGS, gradients, packed, scored, sequences

pytestmark = pytest.mark.gpu


CASES: list[tuple[str, forward.Recompute]] = [
    ("hybrid", "none"),
    ("hybrid", "mamba"),
    ("rotary hybrid", "full"),
    ("rotary", "selective"),
    ("qwen3", "none"),
    ("qwen2.5", "full"),
]


@pytest.mark.parametrize(("kind", "recompute"), CASES)
def test_compiled_layers_on_a_gpu_compute_what_scoring_does(
    kind: str, recompute: forward.Recompute, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whole: a graph break would wait for the host.
    monkeypatch.setattr(forward, "compiled", partial(torch.compile, dynamic=False, fullgraph=True))
    config = qwen_config(kind.removeprefix("qwen")) if kind.startswith("qwen") else CONFIGS[kind]
    made, device = sequences(range(5), config), torch.device("cuda")
    batch = Packer(config, BUDGET).build(made).to(device)
    targets = batch.targets_N[: int(batch.weights_N.sum())]
    exact = random_model(config, device, seed=3).train()
    expected = torch.cat([scored(exact, sequence) for sequence in made])
    exact_gradients = gradients(exact, expected, targets)

    model = random_model(config, device, seed=3).train()
    forward.prepare_layers(model, recompute, compile_them=True)
    with torch.autocast("cuda", torch.bfloat16):
        got = packed(model, batch)[: len(targets)].float()
    assert (got - expected).norm() < 0.02 * expected.norm()
    for name, gradient in gradients(model, got, targets).items():
        assert (gradient - exact_gradients[name]).norm() <= 0.1 * exact_gradients[name].norm() + 1e-5, name


def test_thirty_two_bits_need_no_flash_kernel() -> None:
    made, device = sequences(range(3)), torch.device("cuda")
    model = random_model(CONFIGS["rotary hybrid"], device, seed=3)
    batch = Packer(model.config, BUDGET).build(made).to(device)
    with torch.no_grad():
        got = packed(model, batch)[: int(batch.weights_N.sum())]
        expected = torch.cat([scored(model, sequence) for sequence in made])
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
