"""Checkpoints travel between here and transformers, and a bad one is refused by name, whole."""

import json
import os
import subprocess
import sys
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.checkpoint.storage import read_headers
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.errors import CheckpointError, ConfigError, ModelError

from . import oracle
from .tiny import DENSE_TRANSFORMER, draw_tokens, tiny_config, tiny_model, tiny_vision

KINDS = {
    "dense": lambda: oracle.make_nemotron(0, "dense"),
    "moe": lambda: oracle.make_nemotron(1, "moe"),
    "latent": lambda: oracle.make_nemotron(2, "latent"),
    "qwen3 tied": lambda: next(m for m in map(oracle.make_qwen3, range(9)) if m.config.tie_word_embeddings),
    "qwen3": lambda: next(m for m in map(oracle.make_qwen3, range(9)) if not m.config.tie_word_embeddings),
    "vision": lambda: oracle.make_omni(1, "moe"),
    "vision with final norm": lambda: oracle.make_omni(3, "dense", lookahead=1),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small saved checkpoint to damage."""
    folder = tmp_path_factory.mktemp("saved") / "tiny"
    save_checkpoint(tiny_model("ME*-", dtype=torch.float32), folder)
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_weights_that_come_one_by_one_are_held_a_file_at_a_time(tied, tmp_path):
    model, most = tiny_model("ME*-" * 3, dtype=torch.float32, tied_embeddings=tied), 10_000
    held, highest = [], 0

    def one_by_one():
        nonlocal highest
        for name, parameter in model.named_parameters():
            weight = parameter.detach().clone()
            held.append(weakref.ref(weight))
            there = [each() for each in held]
            highest = max(highest, sum(each.nbytes for each in there if each is not None))
            del there
            yield name, weight

    save_checkpoint(model, tmp_path / "whole", max_shard_bytes=most)
    save_checkpoint(model, tmp_path / "parts", max_shard_bytes=most, weights=one_by_one())
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert len([name for name in files if name.endswith(".safetensors")]) > 3
    for name in files:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    largest = max(parameter.nbytes for parameter in model.parameters())
    assert highest <= most + 2 * largest < sum(parameter.nbytes for parameter in model.parameters()) / 2


def copy_of(folder, tmp_path):
    import shutil

    return shutil.copytree(folder, tmp_path / "copy")


@pytest.mark.parametrize("released", [True, False], ids=["released names", "internal names"])
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind, released, tmp_path):
    """transformers → here → transformers: the same tensors under the same names, and the same weights when loaded."""
    theirs = KINDS[kind]()
    first = oracle.save(theirs, tmp_path / "first", save_original_format=released)
    ours = load_checkpoint(first)
    save_checkpoint(ours, tmp_path / "second")
    before, after = load_file(first / "model.safetensors"), load_file(tmp_path / "second" / "model.safetensors")
    assert before.keys() == after.keys()
    for name in before:
        assert torch.equal(before[name], after[name]), name

    again, report = type(theirs).from_pretrained(tmp_path / "second", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


@pytest.mark.parametrize("kind", ["hybrid", "tied", "experts", "latent", "transformer", "vision"])
def test_made_here_loads_there(kind, tmp_path):
    """A model that never came from a file is written so that transformers computes the same logits from it."""
    from dataclasses import replace

    from holotron.model.config import MoeConfig

    latent = MoeConfig(experts=4, experts_per_token=2, expert_size=16, shared_size=16, latent_size=12, scaling=2.0)
    model = {
        "hybrid": lambda: tiny_model("M-M*-", dtype=torch.float32),
        "tied": lambda: tiny_model("M-M*-", dtype=torch.float32, tied_embeddings=True),
        "experts": lambda: tiny_model("ME*E", dtype=torch.float32),
        "latent": lambda: tiny_model("ME*E", dtype=torch.float32, moe=latent),
        "transformer": lambda: tiny_model(dtype=torch.float32, **DENSE_TRANSFORMER),
        "vision": lambda: tiny_model(
            "M-*-",
            dtype=torch.float32,
            vision=tiny_vision(patch_size=16, video_frames=2, max_image_size=64, tile_size=64),
        ),
    }[kind]()
    save_checkpoint(model, tmp_path / "ours")
    reload = load_checkpoint(tmp_path / "ours")
    assert replace(reload.config, name="tiny") == model.config
    loader = {"transformer": oracle.transformers.Qwen3ForCausalLM, "vision": oracle.omni().NemotronH_Omni_Reasoning_V3}
    theirs = loader.get(kind, oracle.transformers.NemotronHForCausalLM).from_pretrained(tmp_path / "ours").eval()
    tokens = draw_tokens(19)
    with torch.no_grad():
        (logits,) = model.score([tokens])
        assert oracle.difference(logits, theirs(torch.tensor([tokens]), use_cache=False).logits[0]) < 1e-4


def test_shards_and_companions(tmp_path):
    theirs = oracle.make_nemotron(1, "moe")
    first = oracle.save(theirs, tmp_path / "first", max_shard_size="20KB")
    assert len(list(first.glob("*.safetensors"))) > 2
    (first / "tokenizer.json").write_text("{}")
    (first / "chat_template.jinja").write_text("hello")
    ours = load_checkpoint(first)
    save_checkpoint(ours, tmp_path / "second", max_shard_bytes=10_000)
    assert len(list((tmp_path / "second").glob("*.safetensors"))) > 4
    assert (tmp_path / "second" / "chat_template.jinja").read_text() == "hello"
    again = load_checkpoint(tmp_path / "second")
    for (name, a), b in zip(ours.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b), name
    type(theirs).from_pretrained(tmp_path / "second")


def test_prefix_tokens_come_from_the_file(tmp_path):
    """Releases differ in them and not every config says so."""
    folder = oracle.save(oracle.make_omni(0), tmp_path / "model")
    raw = json.loads((folder / "config.json").read_text())
    stored = load_checkpoint(folder).config.vision.prefix_tokens
    raw["vision_config"]["num_registers"] = 99
    (folder / "config.json").write_text(json.dumps(raw))
    assert load_checkpoint(folder).config.vision.prefix_tokens == stored


def test_dtype_is_the_stored_one_or_the_one_asked_for(saved):
    assert load_checkpoint(saved).dtype == torch.float32
    half = load_checkpoint(saved, dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
    wide = {name for name, p in half.named_parameters() if p.dtype == torch.float32}
    assert {name.rpartition(".")[2] for name in wide} == {"A_log", "D", "dt_bias", "e_score_correction_bias"}
    with torch.no_grad():
        (logits,) = half.score([draw_tokens(9)])
    assert logits.dtype == torch.float32
    assert torch.isfinite(logits).all()


def test_progress_reaches_the_end(saved):
    seen = []
    load_checkpoint(saved, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


# ---- damage ----


def rewrite(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def edit_config(folder, **changes):
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | changes))


NAME = "backbone.layers.0.mixer.in_proj.weight"


def test_missing_tensor(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    rewrite(folder, lambda tensors: tensors.pop(NAME))
    with pytest.raises(CheckpointError, match=f"lacks {NAME}$"):
        load_checkpoint(folder)


def test_missing_expert(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    rewrite(folder, lambda tensors: tensors.pop("backbone.layers.1.mixer.experts.2.up_proj.weight"))
    with pytest.raises(CheckpointError, match=r"experts\.2\.up_proj\.weight$"):
        load_checkpoint(folder)


def test_many_missing_tensors_are_counted(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    rewrite(folder, lambda tensors: [tensors.pop(n) for n in list(tensors) if "layers.1." in n])
    with pytest.raises(CheckpointError, match=r"and \d+ more"):
        load_checkpoint(folder)


def test_unexpected_tensor(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    rewrite(folder, lambda tensors: tensors.update({"backbone.layers.0.mixer.in_proj.bias": torch.zeros(3)}))
    with pytest.raises(CheckpointError, match=r"does not call for: backbone\.layers\.0\.mixer\.in_proj\.bias"):
        load_checkpoint(folder)


def test_misshaped_tensor(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    rewrite(folder, lambda tensors: tensors.update({NAME: tensors[NAME][:-1].clone()}))
    with pytest.raises(CheckpointError, match=rf"{NAME} has shape \[\d+, 24\], the config calls for \[\d+, 24\]"):
        load_checkpoint(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_tensor_that_is_not_finite(saved, tmp_path, value):
    folder = copy_of(saved, tmp_path)
    rewrite(folder, lambda tensors: tensors[NAME].view(-1).__setitem__(5, value))
    with pytest.raises(CheckpointError, match=f"{NAME} in model.safetensors holds NaN or infinity"):
        load_checkpoint(folder)


def test_quantised_tensor(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    rewrite(folder, lambda tensors: tensors.update({NAME: tensors[NAME].to(torch.float8_e4m3fn)}))
    with pytest.raises(CheckpointError, match=f"{NAME} is stored as F8_E4M3"):
        load_checkpoint(folder)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.999])
def test_truncated_file(saved, tmp_path, share):
    folder = copy_of(saved, tmp_path)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is truncated or not a safetensors file"):
        load_checkpoint(folder)


def test_pickle_under_a_safetensors_name(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    torch.save({"a": torch.zeros(3)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        load_checkpoint(folder)


def test_only_other_formats(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin, and only safetensors files are read"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing-00001.safetensors", "lists missing-00001.safetensors, which is missing"),
        ("../tiny/model.safetensors", "not a file beside it"),
        ("weights.bin", "only safetensors"),
        (7, "points to 7"),
    ],
)
def test_index_that_points_astray(saved, tmp_path, target, message):
    folder = copy_of(saved, tmp_path)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {NAME: target}}))
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', "\x00"])
def test_broken_index(saved, tmp_path, text):
    folder = copy_of(saved, tmp_path)
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match="not a safetensors index"):
        load_checkpoint(folder)


def test_the_same_tensor_twice(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    (folder / "more.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=r"in both model\.safetensors and more\.safetensors"):
        load_checkpoint(folder)


def test_wrong_pattern(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    edit_config(folder, layers_block_type=["linear_attention", "moe", "full_attention", "full_attention"])
    with pytest.raises(CheckpointError, match=r"lacks backbone\.layers\.3\.mixer\.k_proj\.weight"):
        load_checkpoint(folder)
    edit_config(folder, layers_block_type=["linear_attention", "moe", "full_attention", "perceptron"])
    with pytest.raises(ConfigError, match=r"layers_block_type\[3\] is 'perceptron'"):
        load_checkpoint(folder)


def test_tower_with_layer_scale(tmp_path):
    folder = oracle.save(oracle.make_omni(0), tmp_path / "model")
    name = "vision_model.radio_model.model.blocks.0.layer_scale1.lambda1"
    rewrite(folder, lambda tensors: tensors[name].mul_(0.5))
    with pytest.raises(CheckpointError, match=name):
        load_checkpoint(folder)


# ---- writing safely ----


def test_saving_does_not_overwrite_unless_told(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    other = tiny_model("M-", dtype=torch.float32)
    with pytest.raises(CheckpointError, match="not empty"):
        save_checkpoint(other, folder)
    assert load_checkpoint(folder).config.pattern == "ME*-"
    save_checkpoint(other, folder, overwrite=True)
    assert load_checkpoint(folder).config.pattern == "M-"
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_a_failed_save_leaves_the_old_checkpoint(saved, tmp_path, monkeypatch):
    folder = copy_of(saved, tmp_path)
    from holotron.model.checkpoint import writer

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "_write_json", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tiny_model("M-", dtype=torch.float32), folder, overwrite=True)
    assert load_checkpoint(folder).config.pattern == "ME*-"
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


KILLED_SAVE = """
import os, sys, torch
from holotron.model.checkpoint import writer
from holotron.model.checkpoint.reader import load_checkpoint
model = load_checkpoint(sys.argv[1])
save = writer.save_file
def save_and_die(*arguments):
    save(*arguments)
    os.kill(os.getpid(), 9)
writer.save_file = save_and_die
writer.save_checkpoint(model, sys.argv[1], overwrite=True)
"""


def test_a_killed_save_leaves_the_old_checkpoint(saved, tmp_path):
    folder = copy_of(saved, tmp_path)
    result = subprocess.run([sys.executable, "-c", KILLED_SAVE, str(folder)], env=os.environ, check=False)
    assert result.returncode == -9
    assert load_checkpoint(folder).config.pattern == "ME*-"


MEASURED_LOAD = """
import sys, threading, time, torch
from holotron.model.checkpoint.reader import load_checkpoint
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))
load_checkpoint(sys.argv[2])
before, peak, done = anonymous(), 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, anonymous())
        time.sleep(0.0005)
watcher = threading.Thread(target=watch)
watcher.start()
model = load_checkpoint(sys.argv[1], dtype=torch.bfloat16)
done = True
watcher.join()
print(peak - before, sum(p.nbytes for p in model.parameters()))
"""


def test_loading_needs_no_second_copy(saved, tmp_path):
    """Peak private memory while loading is the weights themselves and the tensor in hand, even with a conversion."""
    from holotron.model.initialize import random_model

    config = tiny_config("M-" * 6, hidden_size=768)
    save_checkpoint(random_model(config, dtype=torch.bfloat16), tmp_path / "large", max_shard_bytes=2**22)
    output = subprocess.run(
        [sys.executable, "-c", MEASURED_LOAD, str(tmp_path / "large"), str(saved)],
        env=os.environ,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    peak, weights = map(int, output.split())
    largest = max(p.nbytes for p in load_checkpoint(tmp_path / "large").parameters())
    assert weights > 2_000_000
    assert peak < weights + 2 * largest + 8_000_000


# ---- by name ----


def test_load_by_folder_preset_and_hub_id(saved, monkeypatch):
    import huggingface_hub

    import holotron

    assert holotron.load(saved, device="cpu").config.pattern == "ME*-"
    asked = []

    def fetched(hub_id, allow_patterns):
        asked.append((hub_id, tuple(allow_patterns)))
        return str(saved)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    holotron.load("holotron-12b", device="cpu")
    holotron.load("someone/else", device="cpu")
    assert [hub_id for hub_id, _ in asked] == ["Hcompany/Holotron-12B", "someone/else"]
    assert "*.safetensors" in asked[0][1]
    assert not any(pattern.endswith((".bin", ".py", ".pt")) for pattern in asked[0][1])

    def offline(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelError, match=r"someone/else could not be fetched .* give the folder"):
        holotron.load("someone/else", device="cpu")


@pytest.mark.parametrize("name", ["no-such-preset", "./missing", "/nowhere/at/all", "a/b/c", ""])
def test_names_that_mean_nothing(name):
    import holotron

    with pytest.raises(ModelError, match="neither a folder"):
        holotron.load(name, device="cpu")


def test_random_weights_are_repeatable():
    import holotron

    a, b, c = (holotron.load("holotron-nano", "cpu", random_weights=True, seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.decoder.lm_head.weight, c.decoder.lm_head.weight)
    with torch.no_grad():
        (logits,) = a.score([list(range(20))])
    assert torch.isfinite(logits).all()
    with pytest.raises(ModelError, match="random weights need a preset"):
        holotron.load("nonsense", "cpu", random_weights=True)


def test_the_bundled_policy_loads_by_its_name(monkeypatch, tmp_path):
    import holotron
    from holotron.model import loading
    from holotron.model.presets import preset

    model = holotron.load("holotron-nano", "cpu")
    assert model.dtype == torch.bfloat16
    assert model.config.pattern == preset("holotron-nano").config.pattern
    assert model.config.vision == preset("holotron-nano").config.vision
    monkeypatch.setattr(loading, "BUNDLED", tmp_path)
    with pytest.raises(ModelError, match="the weights of holotron-nano are not in this installation"):
        holotron.load("holotron-nano", "cpu")


def test_headers_are_read_without_data(saved):
    header = read_headers(saved)[NAME]
    assert header.dtype == "F32"
    assert header.file.name == "model.safetensors"
