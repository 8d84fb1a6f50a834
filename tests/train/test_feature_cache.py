"""Features of a frozen tower that were kept on disk are learned from as if they had been computed."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from holotron.episodes.errors import StoreFull
from holotron.train import feature_cache, learner
from holotron.train.batches import BatchBudget, Packer, TrainingBatch
from holotron.train.feature_cache import FeatureCacheConfig, tower_name
from holotron.train.learner import Learner
from holotron.train.lora import LoraConfig
from holotron.train.recipe import DataSource, Recipe, RecipeError

from .samples import CONFIG, write_start
from .test_forward import sequences

BUDGET = BatchBudget(tokens=1024, patches=512, learned=128, sequences=8, images=16)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("features")
    write_start(made)
    return made / "start"


def recipe(start: Path, folder: Path, cached: bool = True, **changes: object) -> Recipe:
    made = Recipe(
        name="cached",
        stage="localization",
        start=str(start),
        steps=1,
        data=(DataSource(shards="none"),),
        dtype="float32",
        frozen=("vision",),
        batch=BUDGET,
        feature_cache=FeatureCacheConfig(str(folder) if cached else ""),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def batch(*seeds: int) -> TrainingBatch:
    return Packer(CONFIG, BUDGET).build([each for seed in seeds for each in sequences(range(seed, seed + 1))])


def losses(learning: Learner, given: TrainingBatch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    learning.model.zero_grad(set_to_none=True)
    total, *_ = learning.objective(given)
    total.backward()
    found = {name: p.grad.clone() for name, p in learning.model.named_parameters() if p.grad is not None}
    return total.detach(), found


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.features"))


def test_losses_and_gradients_are_those_without_a_cache(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, cached = (Learner(recipe(start, tmp_path, yes), CPU) for yes in (False, True))
    # In another order, and beside others, than when they were computed.
    epochs = [[batch(0, 1), batch(2, 3, 4)], [batch(4, 1), batch(3, 0, 2)]]
    for number, epoch in enumerate(epochs):
        if number == 1:
            monkeypatch.setattr(learner, "run_tower", lambda *_: pytest.fail("the tower was run again"))
        for given in epoch:
            expected, gradients = losses(plain, given)
            loss, got = losses(cached, given)
            assert loss == expected
            assert got.keys() == gradients.keys()
            assert all(torch.equal(got[name], gradients[name]) for name in got)
    assert any(name.startswith("projector.") for name in got), "what follows the tower learns"
    names = {name for given in epochs[0] for name, _ in given.pictures}
    assert {path.stem for path in files(tmp_path)} == names


def test_what_is_damaged_is_computed_again(start: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learning, given = Learner(recipe(start, tmp_path), CPU), batch(0, 1)
    expected, _ = losses(learning, given)
    cut, changed, empty, *_ = kept = files(tmp_path)
    whole = [path.read_bytes() for path in kept]
    cut.write_bytes(whole[0][:-9])
    changed.write_bytes(whole[1][:100] + b"?" + whole[1][101:])
    empty.write_bytes(b"")
    again, _ = losses(learning, given)
    assert again == expected
    assert caplog.text.count("are damaged; they are computed again") == 3
    assert [path.read_bytes() for path in kept] == whole


def test_a_killed_process_and_a_full_disk_leave_a_cache_that_works(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    learning, given = Learner(recipe(start, tmp_path), CPU), batch(0, 1)
    expected, _ = losses(learning, given)
    first, *rest = files(tmp_path)
    # As they are in the middle of writing one: an old one of a process that was killed, and one of another run.
    old, new = (first.with_name(f".{first.name}.{age}.partial") for age in ("old", "new"))
    for partial in (old, new):
        shutil.copy(first, partial)
    os.utime(old, (time.time() - 7200,) * 2)
    first.unlink()

    def full(path: Path, *_: object, **__: object) -> None:
        raise StoreFull(f"{path} could not be written")

    with monkeypatch.context() as patch:
        patch.setattr(feature_cache, "write_whole", full)
        again = Learner(recipe(start, tmp_path), CPU)
        assert losses(again, given)[0] == expected
        assert losses(again, given)[0] == expected
    assert caplog.text.count("no more features are kept") == 1
    assert files(tmp_path) == rest
    assert not old.exists()
    assert new.exists()


def test_a_cache_stays_within_its_limit(start: Path, tmp_path: Path) -> None:
    config = FeatureCacheConfig(str(tmp_path), gibibytes=30_000 / 2**30)
    for _ in range(2):  # a second run finds no more room than the first left
        learning = Learner(recipe(start, tmp_path, feature_cache=config), CPU)
        for seed in range(4):
            losses(learning, batch(seed))
    kept = sum(path.stat().st_size for path in files(tmp_path))
    assert 10_000 < kept < 31_000


def test_other_towers_have_other_features(start: Path, tmp_path: Path) -> None:
    first, smaller = (Learner(recipe(start, tmp_path, max_patches=most), CPU).model for most in (0, 16))
    names = [tower_name(first, torch.float32), tower_name(first, torch.bfloat16), tower_name(smaller, torch.float32)]
    with torch.no_grad():
        first.get_parameter("vision.blocks.1.mlp.fc2.bias")[0] += 1
    assert len({*names, tower_name(first, torch.float32)}) == 4


def test_a_tower_that_learns_is_refused(start: Path, tmp_path: Path) -> None:
    for changes in ({"frozen": ()}, {"frozen": (), "lora": LoraConfig(rank=2, targets=("attn.qkv",))}):
        with pytest.raises(RecipeError, match="feature_cache is set for start, whose vision tower learns"):
            Learner(recipe(start, tmp_path, **changes), CPU)
    with pytest.raises(ValueError, match="gibibytes is 0"):
        FeatureCacheConfig("features", gibibytes=0)
