"""Low-rank changes: none at first, learned beside frozen weights, and the same once they are added to them."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint import FileSystemReader

from holotron.episodes.shards import ShardWriter
from holotron.model.checkpoint.adapter import expert_weights
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.errors import ModelError
from holotron.model.initialize import random_model
from holotron.model.loading import load
from holotron.model.model import Model
from holotron.model.presets import preset
from holotron.model.text.policy_tokenizer import save_policy_texts
from holotron.train.batches import BatchBudget, Packer, TrainingBatch
from holotron.train.forward import encode_images, hidden_of_learned, place_patches, prepare_patches
from holotron.train.lora import LoraConfig, LoraLinear, add_lora, merged
from holotron.train.meter import Progress
from holotron.train.optimizer import Average, OptimizerConfig, make_optimizers, trained
from holotron.train.recipe import DataSource, Recipe, RecipeError, read_recipe
from holotron.train.sft import Interrupted, Trainer
from tests.model.tiny import draw_tokens, tiny_model, tiny_qwen

from .samples import CONFIG, sample

BUDGET = BatchBudget(tokens=512, patches=384, learned=96, sequences=8, images=16)
LORA = LoraConfig(rank=8, alpha=16.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of samples, and a checkpoint to start from, in 32 bits and in 16."""
    made: Path = tmp_path_factory.mktemp("lora")
    with ShardWriter(made / "data" / "part") as shards:
        for seed in range(40):
            shards.add(sample(seed))
    for name, dtype in (("wide", torch.float32), ("half", torch.bfloat16)):
        model = random_model(CONFIG, dtype=dtype, seed=1)
        # A frozen head as small as random ones are could not say anything clearly, whatever comes before it.
        model.decoder.embeddings.weight.data.mul_(10)
        save_checkpoint(model, made / name)
        save_policy_texts(CONFIG, made / name)
    return made


def recipe(folder: Path, start: str = "wide", **changes: object) -> Recipe:
    made = Recipe(
        name="squares",
        stage="localization",
        start=str(folder / start),
        steps=6,
        data=(DataSource(shards=str(folder / "data")),),
        dtype="float32",
        workers=0,
        log_every=1,
        keep_every=100,
        batch=BUDGET,
        optimizer=OptimizerConfig(rate=1e-2, warmup=2, average=0.5),
        lora=LORA,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a_batch(trainer: Trainer) -> TrainingBatch:
    return Packer(CONFIG, BUDGET).build([trainer.writer.write(sample(seed)) for seed in range(500, 503)])


def logits(model: Model, batch: TrainingBatch) -> torch.Tensor:
    assert model.vision is not None
    patches = prepare_patches(batch, model.vision.config, BUDGET.patches, model.device, model.vision.prefix.dtype)
    with torch.no_grad():
        images = encode_images(model, batch, patches, place_patches(batch, model.vision, BUDGET.patches))
        return model.decoder.logits(hidden_of_learned(model, batch, images))


def test_it_starts_as_the_model_it_changes(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(recipe(folder), tmp_path, "cpu")
    batch = a_batch(trainer)
    before, after = logits(load(folder / "wide", "cpu"), batch), logits(trainer.learner.model, batch)
    assert torch.equal(before, after)
    with torch.no_grad():
        for name, parameter in trained(trainer.learner.model).items():
            if name.endswith("lora_B"):
                parameter.normal_(0, 0.02)
    assert float((logits(trainer.learner.model, batch) - before).abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("start", "dtype", "kept"),
    [
        ("wide", "float32", torch.float32),
        ("half", "bfloat16", torch.bfloat16),
        ("half", "float32", torch.float32),
    ],
)
def test_only_the_changes_learn(folder: Path, tmp_path: Path, start: str, dtype: str, kept: torch.dtype) -> None:
    asked = recipe(folder, start, dtype=dtype, steps=12, log_every=4)
    trainer = Trainer(asked, tmp_path, "cpu")
    base = {name: p.detach().clone() for name, p in trainer.learner.model.named_parameters() if "lora" not in name}
    assert base["decoder.layers.0.mixer.in_proj.weight"].dtype == kept
    told: list[Progress] = []
    trainer.run(told.append)
    assert told[-1].loss < 0.9 * told[0].loss
    for name, parameter in trainer.learner.model.named_parameters():
        if name in base:
            assert torch.equal(parameter, base[name]), name
        else:
            assert parameter.dtype == torch.float32, name
    assert all("lora" in name for name in trainer.learner.average.weights)
    held = {
        id(p) for optimizer in trainer.learner.optimizers for group in optimizer.param_groups for p in group["params"]
    }
    assert held == {id(p) for p in trained(trainer.learner.model).values()}


def test_merged_weights_compute_what_the_changes_do(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(recipe(folder), tmp_path, "cpu")
    trainer.run()
    with torch.no_grad():
        for name, parameter in trained(trainer.learner.model).items():
            parameter.copy_(trainer.learner.average.weights[name])
    batch = a_batch(trainer)
    added = load(trainer.learner.export(tmp_path / "wide" / "weights", torch.float32), "cpu")
    assert not any(isinstance(module, LoraLinear) for module in added.modules())
    start, changed, got = (
        logits(model, batch) for model in (load(folder / "wide", "cpu"), trainer.learner.model, added)
    )
    assert float((changed - start).abs().max()) > 0.05
    assert float((changed - got).abs().max()) < 1e-5


def test_the_adapter_file_holds_the_change_of_each_weight(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(recipe(folder), tmp_path, "cpu")
    trainer.run()
    trainer.learner.export(tmp_path / "wide" / "weights", torch.float32)
    base = load_file(folder / "wide" / "model.safetensors")
    added = load_file(tmp_path / "wide" / "weights" / "model.safetensors")
    adapter = load_file(tmp_path / "wide" / "adapter" / "adapter_model.safetensors")
    settings = json.loads((tmp_path / "wide" / "adapter" / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"]) == (8, 16.0)
    changed = {name for name, weight in added.items() if not torch.equal(weight, base[name])}
    # The adapter has the names of transformers' modules, the checkpoint those that were released.
    weights = {
        module: module.replace("_model.model.", "_model.backbone.") + ".weight" for module in settings["target_modules"]
    }
    assert changed == set(weights.values())
    for module, name in weights.items():
        a, b = (adapter[f"base_model.model.{module}.lora_{which}.weight"] for which in "AB")
        assert torch.allclose(added[name], base[name] + 2.0 * b @ a, atol=1e-6), module


def test_an_interrupted_run_goes_on_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    whole = Trainer(recipe(folder), tmp_path / "whole", "cpu")
    whole.run()
    first = Trainer(recipe(folder), tmp_path / "cut", "cpu")
    with pytest.raises(Interrupted, match="step 3 of 6"):
        first.run(lambda progress: first.stop() if progress.step == 3 else None)
    # What never changes is not written again.
    (state,) = (tmp_path / "cut" / "state").iterdir()
    names = FileSystemReader(state).read_metadata().state_dict_metadata
    assert names
    assert all("lora" in name for name in names)
    second = Trainer(recipe(folder), tmp_path / "cut", "cpu")
    second.run()
    for (name, expected), got in zip(
        whole.learner.model.named_parameters(), second.learner.model.parameters(), strict=True
    ):
        assert torch.equal(expected, got), name


def test_targets_are_ends_of_names(folder: Path) -> None:
    model = random_model(CONFIG)
    add_lora(model, LoraConfig(rank=2, targets=("q_proj", "layers.0.mixer.in_proj", "attn.qkv", "projector.up")))
    changed = [name for name, module in model.named_modules() if isinstance(module, LoraLinear)]
    assert changed == [
        "vision.blocks.0.attn.qkv",
        "vision.blocks.1.attn.qkv",
        "projector.up",
        "decoder.layers.0.mixer.in_proj",
        "decoder.layers.3.mixer.q_proj",
    ]
    for target in ("lm_head", "proj_in", "roj"):
        with pytest.raises(ModelError, match=target):
            add_lora(random_model(CONFIG), LoraConfig(rank=2, targets=(target,)))


@pytest.mark.parametrize("shape", [{"pattern": "ME*E"}, tiny_qwen("experts")], ids=["plain", "gated"])
def test_routed_experts_have_changes_of_their_own(shape: dict[str, object], tmp_path: Path) -> None:
    """Output and gradients are those of the changed weights themselves."""
    model = tiny_model(**shape)
    stacked = expert_weights(model)
    ends = sorted({".".join(name.split(".")[-2:]) for name in stacked})
    config = LoraConfig(rank=3, alpha=6.0, targets=tuple(ends))
    whole, tokens = copy.deepcopy(model), [draw_tokens(21)]
    add_lora(model, config)
    changes = trained(model)
    assert len(changes) == 2 * len(stacked)
    with torch.no_grad():
        for change in changes.values():
            change.normal_(0, 0.2)
        for name in stacked:
            weight = whole.get_parameter(name)
            weight.copy_(merged(name, weight, changes, config.scale))
    got, expected = model.score(tokens)[0], whole.score(tokens)[0]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    got.square().sum().backward()
    expected.square().sum().backward()
    for name in stacked:
        owner, _, leaf = name.rpartition(".")
        a, b = (changes[f"{owner}.lora_{which}.{leaf}"] for which in "AB")
        full = whole.get_parameter(name).grad
        assert full is not None
        torch.testing.assert_close(a.grad, (2.0 * b.mT.double() @ full).float(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(b.grad, (2.0 * full @ a.mT.double()).float(), rtol=1e-4, atol=1e-4)
    # Named by their last part alone, the shared experts' are meant.
    with pytest.raises(ModelError, match=r"'down_pro'; there are \[.*experts.down_proj"):
        add_lora(tiny_model(**shape), LoraConfig(rank=1, targets=("down_pro",)))


def test_recipes_have_a_table_for_it(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    good = 'name="a"\nstage="navigation"\nstart="holotron-nano"\nsteps=5\n[[data]]\nshards="x"\n'
    path.write_text(good + '[lora]\nrank=16\nalpha=32\ntargets=["in_proj","out_proj"]\n')
    assert read_recipe(path).lora == LoraConfig(16, 32.0, ("in_proj", "out_proj"))
    path.write_text(good)
    assert read_recipe(path).lora.rank == 0
    path.write_text(good + "[lora]\nrank=-1\n")
    with pytest.raises(RecipeError, match="rank -1"):
        read_recipe(path)


def test_the_large_policy_learns_with_a_small_optimizer() -> None:
    """holotron-12b, described without memory: what is kept of it, and in what."""
    with torch.device("meta"):
        model = Model(preset("holotron-12b").config)
    model.bfloat16()
    base = sum(p.numel() for p in model.parameters())
    add_lora(model, LoraConfig(rank=16))
    learned = sum(p.numel() for p in trained(model).values())
    optimizer = make_optimizers(model, OptimizerConfig())[0]
    average = Average(model, 0.999)
    assert base == 13_171_366_912
    assert learned == 45_408_256
    # Weights, gradients, two moments and the average: under a gigabyte, beside 26 of the frozen model in bfloat16.
    assert 5 * sum(p.nbytes for p in trained(model).values()) < 1e9
    assert sum(p.nbytes for p in model.parameters() if not p.requires_grad) == 2 * base
    assert sum(p.numel() for group in optimizer.param_groups for p in group["params"]) == learned
    assert sum(weights.numel() for weights in average.weights.values()) == learned
