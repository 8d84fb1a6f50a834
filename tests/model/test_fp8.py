"""Models whose layers have 8 bits: rounded when they are read, or read from published checkpoints."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from holotron.engine.errors import EngineError
from holotron.engine.weights import copy_weights, read_weights, weight_checksums
from holotron.model.adapters import load_adapters
from holotron.model.checkpoint import fp8_scales
from holotron.model.checkpoint.config_json import parse_config, render_config
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.errors import CheckpointError, ConfigError, ModelError
from holotron.model.fp8 import FP8, Fp8Linear, use_fp8, weight_scales
from holotron.model.initialize import random_model
from holotron.ops.plain.fp8 import quantize_rows
from tests.engine.driver import Driver, greedy_continuation

from .adapter_files import write_adapter
from .tiny import draw_tokens, tiny_config, tiny_model

FILE = "model.safetensors"
LAYER = "decoder.layers.1.mixer.up_proj"
STORED = "backbone.layers.1.mixer.up_proj.weight"


def wide_model(dtype=torch.float32, **changes):
    return tiny_model("M-*E", dtype=dtype, hidden_size=160, **changes)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fp8") / "whole"
    save_checkpoint(wide_model(), folder)
    return folder


def publish(saved, folder, name, layout, quantization):
    """The checkpoint with its matrices in 8 bits, as a layout has them; returns what they stand for."""
    save_checkpoint(load_checkpoint(saved), folder)
    tensors, exact = load_file(folder / FILE), {}
    for key in [key for key in tensors if key.endswith(("_proj.weight",)) and "gate" not in key]:
        values, scale = layout(tensors[key])
        tensors |= {key: values, key + name: scale}
        exact[key] = fp8_scales.unpack(values, scale)
        if name == "_scale":
            tensors[key.removesuffix("weight") + "input_scale"] = torch.tensor(0.5)
    save_file(tensors, folder / FILE)
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"quantization_config": quantization}))
    return exact


def per_tensor(matrix):
    scale = matrix.abs().max() / 448
    return (matrix / scale).to(FP8), scale


def per_row(matrix):
    values, scale, _ = quantize_rows(matrix)
    return values, scale[:, None]


def per_block(matrix):
    rows, columns = (-(-size // 128) for size in matrix.shape)
    scale = torch.rand(rows, columns) * 0.01 + 0.01
    spread = scale.repeat_interleave(128, 0)[: len(matrix)].repeat_interleave(128, 1)[:, : matrix.shape[1]]
    return (matrix / spread).clamp(-448, 448).to(FP8), scale


LAYOUTS = {
    "modelopt": ("_scale", per_tensor, {"quant_method": "modelopt", "quant_algo": "FP8"}),
    "compressed-tensors": ("_scale", per_row, {"quant_method": "compressed-tensors", "format": "float-quantized"}),
    "fp8": ("_scale_inv", per_block, {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}),
}


def test_layers_are_rounded_when_they_are_read(saved):
    read, whole = load_checkpoint(saved, dtype=FP8), load_checkpoint(saved)
    scales = weight_scales(read)
    assert LAYER + ".weight" in scales
    assert not any(".experts." in name or "lm_head" in name or "gate" in name for name in scales)
    for name, parameter in whole.named_parameters():
        ours = read.get_parameter(name)
        if name in scales:
            values, scale, _ = quantize_rows(parameter)
            assert torch.equal(ours.float(), values.float())
            assert torch.equal(scales[name], scale)
        else:
            assert torch.equal(ours, parameter)
    sequence = draw_tokens(12)
    with torch.no_grad():
        ours, theirs = read.score([sequence])[0], whole.score([sequence])[0]
        use_fp8(whole)
        assert torch.equal(ours, whole.score([sequence])[0])
    assert 0 < (ours - theirs).norm() < 0.2 * theirs.norm()
    with pytest.raises(ModelError, match="writing a checkpoint needs weights of at least 16 bits"):
        save_checkpoint(read, saved.parent / "again")


def test_random_models_have_them_too():
    model = random_model(tiny_config("M-", hidden_size=32), dtype=FP8)
    assert model.dtype == torch.bfloat16
    assert isinstance(model.get_submodule(LAYER), Fp8Linear)
    assert model.score([draw_tokens(4)])[0].isfinite().all()


@pytest.mark.parametrize("kind", LAYOUTS)
def test_published_layouts(saved, tmp_path, kind):
    name, layout, stated = LAYOUTS[kind]
    exact = publish(saved, tmp_path / kind, name, layout, stated)
    assert len(exact) > 4
    read = load_checkpoint(tmp_path / kind)
    layer = read.get_submodule(LAYER)
    assert isinstance(layer, Fp8Linear)
    ours = layer.weight.float() * layer.weight_scale[:, None]
    if kind == "fp8":  # block scales are rounded once more
        assert (ours - exact[STORED]).norm() < 0.04 * exact[STORED].norm()
    else:
        torch.testing.assert_close(ours, exact[STORED], rtol=1e-6, atol=0)
    wide = load_checkpoint(tmp_path / kind, dtype=torch.float32)
    assert not weight_scales(wide)
    torch.testing.assert_close(wide.get_parameter(LAYER + ".weight"), exact[STORED])
    save_checkpoint(wide, tmp_path / "wide")
    assert "quantization_config" not in json.loads((tmp_path / "wide" / "config.json").read_text())


def test_unknown_layouts_are_refused_by_name(saved, tmp_path):
    publish(saved, tmp_path / "x", *LAYOUTS["modelopt"])
    tensors = load_file(tmp_path / "x" / FILE)
    save_file(tensors | {STORED + "_scale": torch.ones(3)}, tmp_path / "x" / FILE)
    with pytest.raises(CheckpointError, match=rf"{STORED}_scale is F32 \[3\] for a matrix of"):
        load_checkpoint(tmp_path / "x")
    del tensors[STORED + "_scale"]
    save_file(tensors, tmp_path / "x" / FILE)
    with pytest.raises(CheckpointError, match=f"there is no {STORED}_scale_inv or {STORED}_scale beside it"):
        load_checkpoint(tmp_path / "x")
    for stated in ({"quant_method": "fp8", "weight_block_size": [64, 64]}, {"quant_method": "fp8", "fmt": "e5m2"}):
        with pytest.raises(ConfigError, match=r"the checkpoint is quantised \(fp8"):
            parse_config(render_config(tiny_config()) | {"quantization_config": stated}, "x")


def test_updates_are_rounded_on_arrival(saved):
    read, other = load_checkpoint(saved, dtype=FP8), wide_model(seed=0)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    before = read.get_parameter(LAYER + ".weight")
    weights = read_weights(read, dict(other.named_parameters()))
    assert weights.whole
    copy_weights(read, weights)
    assert read.get_parameter(LAYER + ".weight") is before
    use_fp8(other)
    assert weight_checksums(read) == weight_checksums(other)
    with pytest.raises(EngineError, match="NaN or infinity"):
        read_weights(read, {LAYER + ".weight": torch.full_like(before, float("inf"), dtype=torch.float32)})


def test_adapters_lie_on_top(saved, tmp_path):
    read = load_checkpoint(saved, dtype=FP8)
    write_adapter(load_checkpoint(saved), tmp_path, 1, ("in_proj", "o_proj"))
    sequence = draw_tokens(6)
    with torch.no_grad():
        alone = read.score([sequence])[0]
        load_adapters(read, {"shop": tmp_path})
        assert torch.equal(read.score([sequence])[0], alone)
        with read.using("shop"):
            assert not torch.allclose(read.score([sequence])[0], alone)
    assert LAYER + ".weight" in weight_scales(read)


def test_sessions_continue_as_if_computed_anew():
    model = wide_model(torch.float64)
    use_fp8(model)
    driver = Driver(model, state_dtype=torch.float64)
    sessions = [driver.loop.open() for _ in range(3)]
    for turn in range(2):
        requests = [driver.start(each, draw_tokens(5 + n, seed=9 * turn + n)) for n, each in enumerate(sessions)]
        driver.run(*requests)
        for session, request in zip(sessions, requests, strict=True):
            answer = driver.answers[request]
            before = list(session.tokens)[: len(session.tokens) - len(answer)]
            assert answer == greedy_continuation(model, before, len(answer))
