"""A float32 model that multiplies in bfloat16: what changes, what stays, and where it is chosen."""

import pytest
import torch

from holotron.engine.build import EngineOptions, load_model
from holotron.engine.weights import copy_weights, read_weights, weight_checksums
from holotron.model.adapters import AdapterLinear, AdapterSet
from holotron.model.bf16_products import Bf16Linear, use_bf16_products
from holotron.model.checkpoint.adapter import LowRank
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.loading import find_checkpoint, load
from holotron.model.text.tokenizer import load_tokenizer
from holotron.ops import processor
from holotron.ops.plain.attention import attention_by_rows

SMALL = {"device": "cpu", "memory_gib": 0.05, "host_gib": 0.0, "tokens_per_session": 256, "max_context": 512}


@pytest.mark.parametrize("positions", [5, 128, 300])
def test_attention_by_rows_is_attention(positions):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 6, positions, 16, dtype=torch.float64)
    torch.testing.assert_close(
        attention_by_rows(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v), rtol=1e-9, atol=1e-9
    )


@torch.no_grad()
def test_the_bundled_policy_sees_and_says_nearly_the_same():
    exact, rounded = load("holotron-nano", "cpu", torch.float32), load("holotron-nano", "cpu", torch.float32)
    use_bf16_products(rounded)
    assert type(rounded.decoder.lm_head) is torch.nn.Linear
    assert rounded.dtype == torch.float32
    torch.manual_seed(0)
    patches, grid = torch.rand(64, 768), (8, 8)
    seen, nearly = (model.encode_patches(patches, [grid])[0] for model in (exact, rounded))
    assert nearly.dtype == torch.float32 or nearly.dtype == torch.bfloat16
    error = (nearly.float() - seen).norm() / seen.norm()
    assert 0 < error < 0.03
    tokens = [6] + [5] * 16 + [7, 272]
    said, almost = (model.score([tokens], [seen])[0].log_softmax(-1) for model in (exact, rounded))
    assert (said - almost).abs().max() > 0
    assert (said.exp() - almost.exp()).abs().max() < 0.1


@torch.no_grad()
def test_an_adapter_is_computed_beside_it_as_wide_as_the_model():
    torch.manual_seed(0)
    base, adapters, change = torch.nn.Linear(8, 4), AdapterSet(), LowRank(torch.randn(2, 8), torch.randn(4, 2))
    layer = AdapterLinear(Bf16Linear(base), adapters)
    layer.fill({1: change}, torch.float32)
    for x_TI in (torch.randn(3, 8), torch.randn(3, 8).bfloat16()):
        with adapters.using(1):
            found = layer(x_TI)
        expected = base(x_TI.float()) + x_TI.float() @ change.A_RI.T @ change.B_OR.T
        torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def test_it_is_chosen_where_the_processor_can_and_nothing_else_was_asked_for(monkeypatch):
    tokenizer = load_tokenizer(find_checkpoint("holotron-nano"))

    def products(dtype=None, wanted=None):
        options = EngineOptions("holotron-nano", dtype=dtype, bf16_products=wanted, **SMALL)
        return any(isinstance(module, Bf16Linear) for module in load_model(options, tokenizer).modules())

    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    for able in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda able=able: able)
        processor.multiplies_bf16.cache_clear()
        assert [products(), products("float32"), products("float32", True), products(wanted=False)] == [
            able,
            False,
            able,
            False,
        ]
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setenv("HOLOTRON_BF16", "0")
    processor.multiplies_bf16.cache_clear()
    assert not products()
    monkeypatch.undo()
    processor.multiplies_bf16.cache_clear()


def test_new_weights_are_those_of_a_fresh_load(tmp_path):
    """From a folder and as a trainer's float32 tensors: nothing is rounded but what a fresh load rounds."""
    options = EngineOptions("holotron-nano", bf16_products=True, dtype="float32", **SMALL)
    new = load("holotron-nano", "cpu", torch.float32)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in new.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    save_checkpoint(new, tmp_path / "new")
    fresh, updated = load(tmp_path / "new", "cpu", torch.float32), load_model(options)
    use_bf16_products(fresh)
    if not processor.multiplies_bf16():
        use_bf16_products(updated)
    first, expected = weight_checksums(updated), weight_checksums(fresh)
    assert all(first[name] != expected[name] for name in expected)
    for source in (tmp_path / "new", dict(new.named_parameters())):
        copy_weights(updated, read_weights(updated, source))
        assert weight_checksums(updated) == expected
        for parameter in updated.parameters():
            parameter.data.zero_()


def test_without_it_every_bit_is_that_of_float32(monkeypatch):
    monkeypatch.setenv("HOLOTRON_BF16", "0")
    processor.multiplies_bf16.cache_clear()
    options = EngineOptions("holotron-nano", bf16_products=True, dtype="float32", **SMALL)
    found, exact = load_model(options).state_dict(), load("holotron-nano", "cpu", torch.float32).state_dict()
    assert all(found[name].dtype == exact[name].dtype and torch.equal(found[name], exact[name]) for name in exact)
    monkeypatch.undo()
    processor.multiplies_bf16.cache_clear()
