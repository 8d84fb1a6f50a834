"""The planner of training counts what the trainer allocates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.model.config import AttentionConfig, MambaConfig, MlpConfig, MoeConfig
from holotron.model.initialize import random_model
from holotron.plan.gpus import gpu
from holotron.train.batches import BatchBudget, Packer
from holotron.train.forward import Recompute, hidden_of_learned, layer_choices, prepare_layers
from holotron.train.learner import Learner
from holotron.train.lora import LoraConfig
from holotron.train.optimizer import OptimizerConfig
from holotron.train.plan import TrainingPlan, TrainingSetup, kept_bytes, planned_recipe
from holotron.train.plan_constants import ASSUMED
from holotron.train.recipe import DataSource, Recipe
from holotron.train.sequences import SequenceWriter

from .samples import CONFIG, sample, write_start
from .test_forward import sequences, without_pictures

BUDGET = BatchBudget(tokens=512, patches=384, learned=128, sequences=8, images=16)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": OptimizerConfig("muon")},
        {"lora": LoraConfig(4)},
        {"frozen": ("vision",), "optimizer": OptimizerConfig(average=0.0)},
    ],
    ids=["everything", "muon", "low-rank", "frozen"],
)
def test_what_stays_is_what_a_run_holds(changes: dict[str, Any], tmp_path: Path) -> None:
    write_start(tmp_path)
    recipe = Recipe(
        name="a",
        stage="localization",
        start=str(tmp_path / "start"),
        steps=1,
        data=(DataSource(shards=str(tmp_path / "data")),),
        dtype="float32",
        batches=1,
        batch=BUDGET,
    )
    recipe = replace(recipe, **changes)
    learner = Learner(recipe, torch.device("cpu"))
    writer = SequenceWriter(learner.writer)
    batch = Packer(CONFIG, BUDGET).build([writer.write(sample(seed)) for seed in range(3)])
    learner.learn([batch], 0)
    memory = TrainingPlan(CONFIG, gpu("H200"), TrainingSetup(recipe, BUDGET.tokens)).memory
    parameters = list(learner.model.parameters())
    assert memory.weights == sum(p.nbytes for p in parameters)
    assert memory.gradients == sum(p.grad.nbytes for p in parameters if p.grad is not None)
    states = [values for optimizer in learner.optimizers for values in optimizer.state.values()]
    assert memory.optimizer == sum(t.nbytes for values in states for t in values.values() if t.dim())
    own = {p.data_ptr() for p in parameters}
    assert memory.average == sum(w.nbytes for w in learner.average.weights.values() if w.data_ptr() not in own)


WIDE = replace(
    CONFIG,
    vision=None,
    tied_embeddings=False,
    mamba=MambaConfig(heads=8, head_dim=16, state_size=32, groups=2, chunk_size=16),
    attention=AttentionConfig(heads=4, kv_heads=4, head_dim=16),
    mlp=MlpConfig(256),
    moe=MoeConfig(8, 2, 96, 128),
)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("symbol", ["M", "*", "-", "E"])
def test_a_layer_keeps_what_is_counted(symbol: str, recompute: Any) -> None:
    """By the difference that two layers more make, in float32."""
    kept, tokens = [], 512
    # One sequence that fills the batch: what is padded is kept as well.
    lengths = without_pictures(sequences(range(1))[0])
    lengths = replace(lengths, token_ids=np.resize(lengths.token_ids, tokens), learn=np.resize(lengths.learn, tokens))
    for layers in (2, 4):
        config = replace(WIDE, pattern=symbol * layers)
        model = random_model(config)
        prepare_layers(model, recompute)
        budget = BatchBudget(tokens=tokens, patches=0, learned=512, sequences=1, images=0)
        batch = Packer(config, budget).build([lengths])
        given = [*model.parameters(), *batch.tables()]
        others = {tensor.untyped_storage().data_ptr() for tensor in given}
        seen: dict[int, torch.Tensor] = {}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, seen=seen: seen.setdefault(t.untyped_storage().data_ptr(), t), lambda t: t
        ):
            hidden_of_learned(model, batch, None)
        kept.append(sum(t.untyped_storage().nbytes() for at, t in seen.items() if at not in others))
    measured = (kept[1] - kept[0]) / 2 / tokens
    expected = kept_bytes(config, symbol, recompute, 4, 4, ASSUMED)
    assert measured == pytest.approx(expected, rel=0.02 if recompute == "full" else 0.2)


def told(*words: str) -> Any:
    done = CliRunner().invoke(app, ["plan", "train", *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_command(tmp_path: Path) -> None:
    write_start(tmp_path)
    whole, low = (told("holotron-nano", "--gpu", "H100", *more) for more in ((), ("--lora", "16")))
    assert low["learned_parameters"] < 0.2 * whole["learned_parameters"]
    assert low["memory_bytes"]["optimizer"] < whole["memory_bytes"]["optimizer"]
    assert whole["fits"]
    assert 0 < whole["share_of_peak"] < 1
    assert whole["seconds"]["total"] > 0
    folder = told(str(tmp_path / "start"), "--tokens", "2048")
    assert folder["parameters"] == CONFIG.parameters
    assert "tokens = 2048" in folder["recipe"]
    # One that does not fit says what would.
    large = told(str(tmp_path / "start"), "--gpu", "L4", "--tokens", str(2**25))
    assert (large["fits"], large["recipe"]) == (False, None)
    assert [way for way in large["ways"] if way.endswith("tokens a batch")]
    many = told(str(tmp_path / "start"), "--gpus", "8", "--tokens", "4096")
    assert many["memory_bytes"]["weights"] == many["parameters"] * 4 / 8
    for words, message in (
        (["holotron-nano", "--recompute", "some"], "recompute is 'some'"),
        (["holotron-nano", "--frozen", "tower"], "frozen has 'tower'"),
        (["holotron-nano", "--gpus", "0"], "gpus is 0"),
        (["no-such-model"], "no-such-model"),
    ):
        done = CliRunner().invoke(app, ["plan", "train", *words])
        assert done.exit_code == 2, words
        assert message in done.output
    assert "holotron plan train" in CliRunner().invoke(app, ["plan", "train", "--help"]).output


def test_every_second_mamba_layer_is_computed_again() -> None:
    assert layer_choices("M-M*M", "half") == ["selective", "selective", "full", "selective", "selective"]
    assert layer_choices("M-M*M", "mamba") == ["full", "selective", "full", "selective", "full"]
    assert layer_choices("M-", "full") == ["full", "full"]


def test_options_change_what_they_should() -> None:
    def planned(**changes: Any) -> TrainingPlan:
        gpus = changes.pop("gpus", 1)
        return TrainingPlan(CONFIG, gpu("H100"), TrainingSetup(planned_recipe("a", **changes), 4096, gpus))

    by_recompute = [planned(recompute=each).memory.activations for each in get_args(Recompute)]
    assert by_recompute == sorted(set(by_recompute), reverse=True)
    assert planned(frozen=("vision",)).memory.images < planned().memory.images
    assert planned(gpus=4).memory.optimizer == planned().memory.optimizer / 4
    assert planned(gpus=4).memory.gathered > 0
    assert planned(recompute="full").time.recomputed > planned(recompute="mamba").time.recomputed > 0


@pytest.mark.parametrize(
    ("measured", "options"),
    [
        ("train-12b-lora", ["--lora", "16"]),
        ("train-12b-lora-selective", ["--lora", "16"]),
        ("train-12b-lora-tower", ["--lora", "16", "--train-tower"]),
        ("train-12b-lora-64k", ["--lora", "16"]),
        ("train-8b-full", ["--no-average", "--text-only"]),
        ("train-4b-full", ["--no-average"]),
    ],
)
def test_it_says_what_was_measured(measured: str, options: list[str]) -> None:
    """Memory within a tenth and seconds within a fifth of what an H200 took, as the results here say."""
    path = Path(__file__).parents[2] / "benchmarks" / "results" / f"{measured}.json"
    seen = json.loads(path.read_text())
    shape = ["--tokens", str(seen["tokens"]), "--recompute", seen["recompute"]]
    plan = told(seen["model"], "--gpu", "H200", *shape, *options)
    assert plan["recompute"] == seen["recompute"]
    assert plan["memory_bytes"]["allocated"] / 2**30 == pytest.approx(seen["peak_memory_gib"], rel=0.10)
    assert plan["seconds"]["total"] == pytest.approx(seen["seconds_per_step"], rel=0.20)
