"""Mixtures of experts on a GPU at the sizes of the real models, against the plain ops in float64.

Also a script, for machines without pytest: python tests/ops/test_triton_experts_gpu.py
"""

import sys
import traceback

import torch

try:
    import pytest

    pytest.importorskip("triton")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device", allow_module_level=True)
    pytestmark = pytest.mark.gpu
except ImportError:
    pass

from holotron import ops
from holotron.ops.plain import experts as plain
from holotron.ops.triton import experts

BF16 = torch.bfloat16
# Rounding the result alone gives 0.0017; the inner values are rounded too.
BF16_ERROR = 5e-3
# Nemotron-3-Nano: experts, experts per token, width, inner width; Qwen3-30B-A3B, whose experts are gated.
NEMOTRON, QWEN = (128, 6, 2688, 1856), (128, 8, 2048, 768)
TOKENS = (1, 2, 16, 100, 341, 512, 2368, 8192)


def draw(*shape, seed=0, dtype=BF16, scale=1.0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(*shape, generator=generator, device="cuda") * scale).to(dtype)


class Layer:
    """The weights of one layer and batches for it."""

    def __init__(self, shape, gated=False, dtype=BF16):
        self.experts, self.per_token, self.width, inner = shape
        self.dtype = dtype
        up, gate = (draw(self.experts, inner, self.width, seed=s, dtype=dtype, scale=self.width**-0.5) for s in (1, 2))
        self.up, self.gate = up, gate if gated else None
        self.down = draw(self.experts, self.width, inner, seed=3, dtype=dtype, scale=inner**-0.5)
        self.options = {"activation": "silu" if gated else "relu_squared"}

    def batch(self, tokens, seed=0):
        x = draw(tokens, self.width, seed=seed, dtype=self.dtype)
        scores = draw(tokens, self.experts, seed=seed + 1, dtype=torch.float32)
        return x, *plain.route(scores, None, self.per_token)

    def run(self, x, chosen, weights, **options):
        return experts.run_experts(x, chosen, weights, self.up, self.down, self.gate, **self.options, **options)

    def exact(self, x, chosen, weights):
        wide = [None if part is None else part.double() for part in (self.up, self.down, self.gate)]
        return plain.run_experts(x.double(), chosen, weights.double(), *wide, **self.options)


def check(layer, batch, bound, **options):
    torch.full((256, 2**20), float("nan"), device="cuda")  # new tensors come from this memory: what is unwritten shows
    y, exact = layer.run(*batch, **options), layer.exact(*batch)
    assert y.isfinite().all(), "not finite"
    error = ((y.double() - exact).norm() / exact.norm()).item()
    assert error < bound, f"{len(batch[0])} tokens: relative error {error:.2e}, allowed {bound:.0e}"


def test_bfloat16():
    for shape, gated in ((NEMOTRON, False), (QWEN, True)):
        layer = Layer(shape, gated)
        for tokens in TOKENS:
            check(layer, layer.batch(tokens), BF16_ERROR)
        for _, tile in experts.TILES:
            check(layer, layer.batch(100), BF16_ERROR, tile=tile)


def test_float32():
    for gated in (False, True):
        layer = Layer((16, 3, 512, 320), gated, torch.float32)
        for tokens in (1, 50, 100, 700, 3000):
            check(layer, layer.batch(tokens), 1e-5)


def test_all_tokens_at_the_same_experts():
    layer = Layer(NEMOTRON)
    for tokens in (100, 2368):
        x, chosen, weights = layer.batch(tokens)
        check(layer, (x, torch.arange(6, device="cuda").expand_as(chosen), weights), BF16_ERROR)
        check(layer, (x, torch.arange(122, 128, device="cuda").expand_as(chosen), weights), BF16_ERROR)


def test_route():
    """The experts of the plain version, up to scores that are equal within rounding."""
    for count, per_token, groups, kept in ((128, 6, 1, 1), (512, 22, 1, 1), (128, 8, 8, 4)):
        logits, correction = draw(2368, count, dtype=torch.float32), draw(count, seed=1, dtype=torch.float32)
        for scoring in ("sigmoid", "softmax"):
            options = {"scoring": scoring, "groups": groups, "groups_per_token": kept, "scaling": 2.5}
            chosen, weights = experts.route(logits, correction, per_token, **options)
            expected_chosen, expected = plain.route(logits, correction, per_token, **options)
            same = (chosen.sort(-1).values == expected_chosen.sort(-1).values).all(-1)
            assert same.float().mean() > 0.999, f"{(~same).sum().item()} tokens with other experts"
            torch.testing.assert_close(weights[same].sum(-1), expected[same].sum(-1), rtol=1e-4, atol=1e-6)


def test_the_ops_take_these_without_waiting_for_the_device():
    layer = Layer(NEMOTRON)
    x = draw(100, layer.width)
    logits, correction = draw(100, layer.experts, dtype=torch.float32), torch.zeros(layer.experts, device="cuda")

    def step():
        chosen, weights = ops.route(logits, correction, layer.per_token)
        return ops.run_experts(x, chosen, weights, layer.up, layer.down)

    with torch.no_grad():
        first = step()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            second = step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(first, second)


def test_in_a_graph():
    """Recorded with one routing, replayed with others: spread, all tokens at the same experts, and back."""
    layer = Layer(NEMOTRON)
    x, chosen, weights = layer.batch(100)
    layer.run(x, chosen, weights)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer.run(x, chosen, weights)
    for seed in range(4):
        new_x, new_chosen, new_weights = layer.batch(100, seed=10 * seed)
        x.copy_(new_x)
        chosen.copy_(torch.arange(6, device="cuda").expand_as(chosen) if seed == 2 else new_chosen)
        weights.copy_(new_weights)
        graph.replay()
        assert torch.equal(y, layer.run(x, chosen, weights)), f"replay {seed} differs"


def test_a_token_does_not_see_its_neighbours():
    """The same bits in every batch that has the same tile; how many tokens differ across tiles is printed."""
    layer = Layer(NEMOTRON)
    batch = layer.batch(8192)
    whole = layer.run(*(part[:341] for part in batch))
    for first, last in ((0, 1), (7, 8), (3, 100), (0, 341)):
        part = layer.run(*(each[first:last] for each in batch))
        assert torch.equal(part, whole[first:last]), (first, last)
    for tokens in (512, 2368, 8192):
        differ = (layer.run(*(part[:tokens] for part in batch))[:341] != whole).any(-1)
        print(f"    {tokens} tokens against 341: {differ.float().mean().item():.1%} of the tokens differ in some bit")


def main() -> int:
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                torch.cuda.synchronize()
                print(f"pass {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL {name}\n{traceback.format_exc(limit=-3)}", flush=True)
            torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
