"""Adapters beside a model compute what merged weights compute, alone and together, and share nothing that is theirs."""

import asyncio
import copy
import json
import random

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import holotron
from holotron.engine.build import EngineOptions, build_engine
from holotron.engine.config import EngineConfig
from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.engine.prefix import continue_or_open
from holotron.model.adapters import AdapterLinear, load_adapters
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.errors import CheckpointError, ModelError
from tests.model.adapter_files import write_adapter
from tests.model.tiny import DENSE_TRANSFORMER, IMAGE_TOKEN, draw_tokens, tiny_model, tiny_qwen, tiny_vision

from .driver import Driver, greedy_continuation

EVERY_KIND = {
    "hybrid": {"pattern": "M-M*-"},
    "experts": {"pattern": "ME*E"},
    "transformer": DENSE_TRANSFORMER,
    "qwen2.5-vl": tiny_qwen("qwen2.5"),
    "qwen3-vl experts": tiny_qwen("experts"),
}
SIGHT = ("attn.qkv", "mlp.fc1", "projector.up", "in_proj")


def with_two(model, folder, targets):
    """The model with two adapters of different ranks, and what it should compute with each, or with none."""
    expected = {
        None: copy.deepcopy(model),
        "a": write_adapter(model, folder / "a", 1),
        "b": write_adapter(model, folder / "b", 2, targets, rank=5),
    }
    load_adapters(model, {name: folder / name for name in ("a", "b")})
    return model, expected


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    targets = ("layers.1.mixer.up_proj", "in_proj", "q_proj", "o_proj")
    return with_two(tiny_model("M-M*-"), tmp_path_factory.mktemp("adapters"), targets)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_logits_are_those_of_the_merged_model(kind, dtype, tolerance, tmp_path):
    model = tiny_model(dtype=dtype, **EVERY_KIND[kind])
    whole = write_adapter(model, tmp_path / "adapter", 1, spread=0.15)
    tokens = [draw_tokens(33), draw_tokens(7, seed=1)]
    with torch.no_grad():
        before = torch.cat(model.score(tokens))
        load_adapters(model, {"a": tmp_path / "adapter"})
        with model.using("a"):
            adapted = torch.cat(model.score(tokens))
        assert torch.equal(torch.cat(model.score(tokens)), before)
        assert (adapted - before).abs().max() > 0.1
        assert (adapted - torch.cat(whole.score(tokens))).abs().max() < tolerance


@pytest.mark.parametrize("released", [True, False], ids=["released names", "internal names"])
def test_adapters_come_in_both_spellings(released, tmp_path, monkeypatch):
    """With the internal names, which are written, q, k and v of the tower are changed one by one."""
    from holotron.model.checkpoint.names import default_dialect

    model = tiny_model("M-*-", vision=tiny_vision(), dtype=torch.float32)
    if released:
        monkeypatch.setattr("holotron.train.lora.module_dialect", default_dialect)
    whole = write_adapter(model, tmp_path / "adapter", 1, SIGHT)
    keys = load_file(tmp_path / "adapter" / "adapter_model.safetensors").keys()
    assert any("backbone" in key for key in keys) == released
    assert any(".attention.q_proj." in key for key in keys) == (not released)
    load_adapters(model, {"a": tmp_path / "adapter"})
    patches, grids = torch.randn(24, 48), [(4, 6)]
    tokens = [*draw_tokens(5), *[IMAGE_TOKEN] * 6, *draw_tokens(4)]
    with torch.no_grad(), model.using("a"):
        adapted = model.score([tokens], model.encode_patches(patches, grids))[0]
        expected = whole.score([tokens], whole.encode_patches(patches, grids))[0]
    assert (adapted - expected).abs().max() < 1e-5 * max(1.0, float(expected.abs().max()))


def test_sessions_of_one_batch_have_their_own(three):
    model, expected = three
    driver = Driver(model)
    names = [None, "a", "b", "a", None, "b"]
    sessions = [driver.loop.open(adapter=name) for name in names]
    prompts = [draw_tokens(6 + i, seed=i % 2) for i in range(len(names))]
    told = [list(prompt) for prompt in prompts]
    for turn in range(2):  # prefill and decode, and going on from what is remembered
        new = prompts if turn == 0 else [draw_tokens(3, seed=9)] * len(names)
        requests = [driver.start(session, tokens) for session, tokens in zip(sessions, new, strict=True)]
        driver.run()
        for name, tokens, request, text in zip(names, new, requests, told, strict=True):
            text += tokens if turn else []
            assert driver.answers[request] == greedy_continuation(expected[name], text, 5)
            text += driver.answers[request]
    (fork,) = driver.loop.fork(sessions[1], 1)
    driver.run()
    assert driver.turn(fork, [7]) == greedy_continuation(expected["a"], [*told[1], 7], 5)
    driver.loop.park(sessions[2])
    driver.loop.rollback(sessions[2], -1)
    assert driver.turn(sessions[2], [7]) == greedy_continuation(expected["b"], [*told[2][: 8 + 5], 7], 5)


def test_random_schedules(three):
    """Sessions of three kinds that go on, fork and are parked, in any order, with too little room for all."""
    model, expected = three
    for seed in range(3):
        draw = random.Random(seed)
        driver = Driver(model, slots=4, pages=24, checkpoints=1)
        known = [(name, driver.loop.open(adapter=name)) for name in (None, "a", "b")]
        for _ in range(8):
            name, session = draw.choice(known)
            if draw.random() < 0.3 and session.tokens:
                known += [(name, child) for child in driver.loop.fork(session, 1)]
                driver.run()
            elif draw.random() < 0.2:
                driver.loop.park(session)
            elif len(session.tokens) < 40:
                chosen = {id(s): (n, s) for n, s in draw.sample(known, min(3, len(known))) if len(s.tokens) < 40}
                started = [
                    (n, list(s.tokens), new, driver.start(s, new))
                    for n, s in chosen.values()
                    for new in [draw_tokens(draw.randint(1, 6), seed=draw.randrange(99))]
                ]
                driver.run()
                for n, before, new, request in started:
                    assert driver.answers[request] == greedy_continuation(expected[n], before + new, 5)


def test_nothing_remembered_is_shared_between_adapters(three):
    model, _ = three
    driver = Driver(model)
    tokens = draw_tokens(20)
    for name in (None, "a", "b"):
        session, known = continue_or_open(driver.loop, tokens, (), "pool", adapter=name)
        assert known == 0, name
        driver.turn(session, tokens)
    for name in (None, "a", "b"):
        session, known = continue_or_open(driver.loop, [*tokens, 1], (), "pool", adapter=name)
        assert known == 20
        assert session.adapter == driver.loop.adapter_number(name)


def test_an_adapter_of_the_tower_sees_for_itself(tmp_path):
    model, expected = with_two(tiny_model("M-*-", vision=tiny_vision()), tmp_path, SIGHT)
    with Engine(model, EngineConfig(slots=12, pages=90, state_dtype=torch.float64)) as engine:
        image = asyncio.run(engine.prepare_image(Image.effect_noise((24, 16), 90).convert("RGB")))
        patches, grids = image.image.patches, image.image.grids
        tokens = [1, 61, *[IMAGE_TOKEN] * image.image.tokens, 62, 3]
        for name, parts in ((None, 1), ("a", 0), ("b", 1), ("b", 0), (None, 0)):
            before = engine.counters()["encoded_parts"]
            session = engine.open_session(adapter=name)
            asyncio.run(session.generate(tokens, holotron.SamplingParams(max_tokens=1), images=[(2, image)]))
            # What leaves the tower as it is sees what the model sees; nothing is encoded twice.
            assert engine.counters()["encoded_parts"] - before == parts, name
            whole = expected[name]
            with torch.no_grad():
                logits = whole.score([tokens], whole.encode_patches(patches, grids))[0][-1]
            got = session._state.checkpoints[-1].logits
            assert (got - logits).abs().max() < 1e-9


def test_the_engine_is_built_with_adapters(tmp_path):
    model = tiny_model("M-*-", dtype=torch.float32)
    save_checkpoint(model, tmp_path / "base")
    whole = write_adapter(load_checkpoint(tmp_path / "base"), tmp_path / "adapter", 1)
    given = (("shop", str(tmp_path / "adapter")),)
    options = EngineOptions(model=str(tmp_path / "base"), memory_gib=0.01, tokenizer=False, adapters=given)
    greedy = holotron.SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
    with build_engine(options) as engine:
        answer = asyncio.run(engine.open_session(adapter="shop").generate([5, 6], greedy))
        assert answer.token_ids == greedy_continuation(whole, [5, 6], 4)
        with pytest.raises(ModelError, match="there is no adapter 'shops'; loaded are shop"):
            engine.open_session(adapter="shops")
        # New weights below them: the adapters stay.
        engine.update_weights({"decoder.norm_f.weight": whole.decoder.norm_f.weight * 2})
        again = asyncio.run(engine.open_session(adapter="shop").generate([5, 6], greedy))
        whole.decoder.norm_f.weight.data.mul_(2)
        assert again.token_ids == greedy_continuation(whole, [5, 6], 4)
    with pytest.raises(EngineError, match="two adapters have one name"):
        EngineOptions(adapters=(*given, *given))
    with Engine(model, EngineConfig(slots=2, pages=4)) as plain, pytest.raises(EngineError, match="without any"):
        plain.open_session(adapter="shop")


BROKEN = {
    "no config": (lambda folder: (folder / "adapter_config.json").unlink(), "must hold adapter_config.json"),
    "other method": (lambda folder: settings(folder, peft_type="IA3"), "peft_type is 'IA3', which is not supported"),
    "dora": (lambda folder: settings(folder, use_dora=True), "use_dora is True"),
    "whole modules": (lambda folder: settings(folder, modules_to_save=["lm_head"]), "modules_to_save"),
    "changed base": (lambda folder: settings(folder, init_lora_weights="pissa"), "init_lora_weights is 'pissa'"),
    "no alpha": (lambda folder: settings(folder, lora_alpha=None), "lora_alpha is None"),
    "other base": (lambda folder: rename(folder, "in_proj", "qkv_proj"), "it changes .*qkv_proj, which is no linear"),
    "head": (lambda folder: rename(folder, "model.layers.0.mixer.in_proj", "lm_head"), "it changes lm_head"),
    "half a pair": (lambda folder: tensors(folder, lambda key, t: None if "lora_A" in key else t), "lora_B alone"),
    "other tensor": (lambda folder: rename(folder, "lora_A", "lora_magnitude"), "is no lora_A or lora_B"),
    "misfit": (lambda folder: tensors(folder, lambda _, t: t.repeat(1, 2)), "do not fit a layer of"),
    "not finite": (lambda folder: tensors(folder, lambda _, t: t / 0), "NaN or infinity"),
    "no tensors": (lambda folder: tensors(folder, lambda *_: None), "holds no tensors"),
    "truncated": (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b"1234567"), "truncated"),
}


def settings(folder, **changes) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def tensors(folder, change) -> None:
    path = folder / "adapter_model.safetensors"
    changed = {key: change(key, tensor) for key, tensor in load_file(path).items()}
    save_file({key: t.contiguous() for key, t in changed.items() if t is not None}, path)


def rename(folder, old, new) -> None:
    path = folder / "adapter_model.safetensors"
    save_file({key.replace(old, new): tensor for key, tensor in load_file(path).items()}, path)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_malformed_adapter_is_refused_with_the_reason(kind, tmp_path):
    model = tiny_model("M-*-", dtype=torch.float32)
    for name in ("good", "bad"):
        write_adapter(model, tmp_path / name, 1)
    damage, message = BROKEN[kind]
    damage(tmp_path / "bad")
    with pytest.raises(CheckpointError, match=message):
        load_adapters(model, {"good": tmp_path / "good", "bad": tmp_path / "bad"})
    assert model.adapters is None
    assert not any(isinstance(module, AdapterLinear) for module in model.modules())


def test_the_scale_follows_the_settings(tmp_path):
    model = tiny_model("M-*-", dtype=torch.float32)
    write_adapter(model, tmp_path, 1, rank=4)

    def strength(**changes) -> dict[str, float]:
        settings(tmp_path, **changes)
        fresh = copy.deepcopy(model)
        load_adapters(fresh, {"a": tmp_path})
        layers = {n: m for n, m in fresh.named_modules() if isinstance(m, AdapterLinear)}
        return {name: float(layer.lora_B.abs().sum()) for name, layer in layers.items()}

    usual = strength(lora_alpha=8)
    assert all(value == pytest.approx(2 * usual[name]) for name, value in strength(use_rslora=True).items())
    other = strength(use_rslora=False, alpha_pattern={"in_proj": 24})
    for name, value in other.items():
        assert value == pytest.approx((3 if name.endswith("in_proj") else 1) * usual[name])
