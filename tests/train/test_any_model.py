"""Training of models that are not the small policy: tiles, points as digits, large vocabularies, parts that rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from holotron.agent.policy_format import NANO, save_format
from holotron.episodes.shards import ShardWriter
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.config import ModelConfig
from holotron.model.image import load_image
from holotron.model.initialize import random_model
from holotron.model.loading import load
from holotron.model.model import Model
from holotron.model.text.policy_tokenizer import save_policy_texts
from holotron.model.tiling import ImageProcessor
from holotron.train import forward, loss
from holotron.train.batches import BatchBudget, Packer, TrainingBatch
from holotron.train.learner import Learner
from holotron.train.loss import Coordinates, losses_of_hidden, losses_of_learned
from holotron.train.optimizer import OptimizerConfig, trained
from holotron.train.recipe import DataSource, Recipe, RecipeError
from holotron.train.sequences import Sequence, SequenceWriter
from holotron.train.sft import Trainer

from .samples import CONFIG, policy_writer, sample
from .test_forward import gradients, packed

assert CONFIG.vision is not None
TILED: ModelConfig = replace(CONFIG, vision=replace(CONFIG.vision, mode="tiles", tile_size=32, max_tiles=6))
BUDGET = BatchBudget(tokens=1024, patches=768, learned=128, sequences=12, images=192)


def tiled(seeds: range) -> list[Sequence]:
    writer = SequenceWriter(policy_writer(TILED))
    return [writer.write(sample(seed)) for seed in seeds]


def tiled_batch() -> TrainingBatch:
    return Packer(TILED, BUDGET).build(tiled(range(4)))


def test_patches_of_tiles_are_those_of_the_image_processor() -> None:
    assert TILED.vision is not None
    batch = tiled_batch()
    patches = forward.prepare_patches(batch, TILED.vision, BUDGET.patches, torch.device("cpu"), torch.float32)
    pictures = [picture for each in tiled(range(4)) for picture in each.pictures]
    processor = ImageProcessor(TILED.vision)
    expected = torch.cat([processor(load_image(picture.png)).patches for picture in pictures])
    assert torch.equal(patches[: len(expected)], expected)


def kept_for_gradients(model: Model, batch: TrainingBatch) -> int:
    """Bytes of what is not a parameter that the forward pass keeps for the backward pass."""
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    held: list[torch.Tensor] = []  # so that no memory is used twice while it is counted
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (held.append(t), note(t))[1], lambda t: t):
        packed(model, batch)
    return sum(kept.values())


def test_recomputed_layers_keep_less() -> None:
    batch = tiled_batch()
    sizes = {}
    for recompute in ("none", "full"):
        model = random_model(TILED, seed=3).train()
        forward.prepare_layers(model, recompute)  # type: ignore[arg-type]
        sizes[recompute] = kept_for_gradients(model, batch)
    assert sizes["full"] < 0.25 * sizes["none"]


def test_logits_in_parts_have_the_gradients_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(16, 500, bias=False).double()
    hidden, targets = torch.randn(70, 16, dtype=torch.float64), torch.randint(500, (70,))
    results = []
    for most in (2**28, 500 * 32):
        monkeypatch.setattr(loss, "MOST_LOGITS", most)
        leaf = hidden.clone().requires_grad_()
        head.zero_grad()
        losses = losses_of_hidden(head, leaf, targets, Coordinates(), losses_of_learned)
        (losses * torch.arange(70)).sum().backward()
        assert leaf.grad is not None
        assert head.weight.grad is not None
        results.append((losses.detach(), leaf.grad, head.weight.grad.clone()))
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)


# ---- whole runs ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("tiled")
    with ShardWriter(made / "data" / "part") as shards:
        for seed in range(24):
            shards.add(sample(seed))
    save_checkpoint(random_model(TILED, dtype=torch.bfloat16, seed=1), made / "start")
    save_policy_texts(TILED, made / "start")
    save_format(NANO, made / "start")
    (made / "start" / "generation_config.json").write_text('{"eos_token_id": [2, 11]}')
    return made


def recipe(folder: Path, **changes: object) -> Recipe:
    made = Recipe(
        name="tiled",
        stage="navigation",
        start=str(folder / "start"),
        steps=2,
        data=(DataSource(shards=str(folder / "data")),),
        dtype="float32",
        workers=0,
        log_every=1,
        batch=BUDGET,
        optimizer=OptimizerConfig(rate=3e-3, warmup=1, average=0.0),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_frozen_parts_stay_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    trainer = Trainer(recipe(folder, frozen=("vision", "decoder.embeddings")), tmp_path, "cpu")
    learning = trained(trainer.learner.model)
    assert not any(name.startswith(("vision.", "decoder.embeddings")) for name in learning)
    before, after = load(folder / "start"), load(trainer.run())
    moved = set()
    for (name, old), new in zip(before.named_parameters(), after.parameters(), strict=True):
        if not torch.equal(old, new):
            moved.add(name)
    assert moved
    assert moved <= set(learning)


def test_an_export_changes_weights_alone(folder: Path, tmp_path: Path) -> None:
    # Whatever else a release has beside its weights; weights in other forms would be of another model now.
    for name in ("README.md", "vocab.json", "processing_model.py", "pytorch_model.bin"):
        (folder / "start" / name).write_text(f"what {name} says")
    out = Trainer(recipe(folder), tmp_path, "cpu").run()
    (folder / "start" / "pytorch_model.bin").unlink()
    start = {path.name: path.read_bytes() for path in (folder / "start").iterdir()}
    made = {path.name: path.read_bytes() for path in out.iterdir()}
    assert made.keys() == start.keys()
    assert [name for name in made if made[name] != start[name]] == ["model.safetensors"]


def test_an_export_has_the_type_that_is_asked_for(folder: Path, tmp_path: Path) -> None:
    out = Trainer(recipe(folder, steps=1, export_dtype="float32"), tmp_path, "cpu").run()
    assert json.loads((out / "config.json").read_text())["dtype"] == "float32"
    assert {tensor.dtype for tensor in load_file(out / "model.safetensors").values()} == {torch.float32}
    with pytest.raises(RecipeError, match="export_dtype is 'int8'"):
        recipe(folder, export_dtype="int8")


def test_several_batches_make_one_step(folder: Path, tmp_path: Path) -> None:
    """The gradient of a step is that of its batches' mean over all that they learn."""
    learner = Learner(recipe(folder, batches=2, coordinate_sigma=0.0), torch.device("cpu"))
    batches = [Packer(TILED, BUDGET).build(tiled(seeds)) for seeds in (range(2), range(2, 7))]
    learner._gradients(batches)
    got = {name: p.grad.clone() for name, p in learner.model.named_parameters() if p.grad is not None}
    logits = torch.cat([packed(learner.model, batch)[: int(batch.weights_N.sum())] for batch in batches])
    targets = torch.cat([batch.targets_N[: int(batch.weights_N.sum())] for batch in batches])
    for name, expected in gradients(learner.model, logits, targets).items():
        if name in got:
            torch.testing.assert_close(got[name], expected, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ocr_loss": 0.5}, "ocr_loss needs a vision tower of dynamic resolution"),
        ({"max_patches": 16}, "max_patches needs a vision tower of dynamic resolution"),
    ],
)
def test_what_the_model_cannot_do_is_refused_before_its_weights_are_read(
    folder: Path, changes: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holotron.train.starting_model.load", lambda *_: pytest.fail("the weights were read"))
    with pytest.raises(RecipeError, match=message):
        Learner(recipe(folder, **changes), torch.device("cpu"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recompute": "some"}, "recompute is 'some'; known are none, selective, half, mamba, full"),
        ({"frozen": ("tower",)}, "frozen has 'tower'; names begin with vision, projector, decoder"),
        ({"batches": -1}, "batches is -1"),
    ],
)
def test_options_are_checked(folder: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(folder, **changes)
