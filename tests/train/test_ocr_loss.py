"""The OCR loss: the characters of each patch, and a vision tower that learns to tell them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from holotron.model.loading import load
from holotron.train.batches import BatchBudget, Packer
from holotron.train.lora import LoraConfig
from holotron.train.meter import Progress
from holotron.train.ocr_loss import KINDS, OTHER, SLOTS, UNREAD, Letters, OcrHead, ocr_loss
from holotron.train.optimizer import OptimizerConfig
from holotron.train.recipe import DataSource, Recipe, RecipeError
from holotron.train.sequences import SequenceWriter
from holotron.train.sft import Interrupted, Trainer

from .samples import CONFIG, policy_writer, write_start, written

BUDGET = BatchBudget(tokens=512, patches=256, learned=96, sequences=12, images=12)


def codes(text: str) -> list[int]:
    return [ord(character) - 32 for character in text] + [0] * (SLOTS - len(text))


def test_characters_stand_in_their_patches_in_reading_order() -> None:
    writing = {
        "words": [("below", 14, (33, 35, 37, 39, 41)), ("a€", 8, (34, 49)), ("out", 90, (1, 2, 3))],
        "unread": [(0.0, 20.0, 15.0, 40.0)],
    }
    labels = Letters.of(writing).labels((64, 64), (4, 4)).reshape(4, 4, SLOTS)
    assert labels[0, 2].tolist() == codes("abelow")  # the higher line first; there is no room for more
    assert labels[0, 3].tolist() == [OTHER, *[0] * (SLOTS - 1)]
    assert (labels[1:3, 0] == UNREAD).all()
    rest = labels.copy()
    rest[0, 2:] = rest[1:3, 0] = 0
    assert not rest.any()


def test_an_image_of_another_size_than_its_grid() -> None:
    letters = Letters.of({"words": [("ab", 150, (10, 199))], "unread": []})
    labels = letters.labels((200, 160), (4, 6)).reshape(4, 6, SLOTS)
    assert labels[3, 0].tolist() == codes("a")
    assert labels[3, 5].tolist() == codes("b")


def test_a_batch_has_them_in_the_order_of_its_image_tokens() -> None:
    writer = SequenceWriter(policy_writer(CONFIG))
    sequences = [writer.write(written(seed)) for seed in range(3)]
    batch = Packer(CONFIG, BUDGET).build(sequences)
    corners = batch.ocr_labels_YG.numpy()
    for place, sequence in enumerate(sequences):
        [picture] = sequence.pictures
        rows, columns = picture.grids[0]
        assert picture.ocr_labels is not None
        table = picture.ocr_labels.reshape(rows, columns, SLOTS)
        for token in range(rows * columns // 4):
            row, column = 2 * (token // (columns // 2)), 2 * (token % (columns // 2))
            here = corners[rows * columns * place + 4 * token :][:4]
            assert np.array_equal(here, table[row : row + 2, column : column + 2].reshape(4, SLOTS))
    assert (corners[batch.used_patches :] == UNREAD).all()


def test_what_is_not_known_is_not_learned() -> None:
    head = OcrHead(16)
    images = torch.randn(2, 16, requires_grad=True)
    labels = torch.full((8, SLOTS), UNREAD, dtype=torch.uint8)
    assert ocr_loss(head, images, labels).item() == 0
    labels[5, 0] = 33  # a corner of the second token
    loss = ocr_loss(head, images, labels)
    row = head(images)[5 * SLOTS]
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(row[None], torch.tensor([33])))
    loss.backward()
    assert images.grad is not None
    assert not images.grad[0].any()
    assert images.grad[1].any()
    assert head(images).shape == (8 * SLOTS, KINDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("ocr")
    write_start(made)
    return made


def recipe(folder: Path, steps: int, **changes: object) -> Recipe:
    optimizer = OptimizerConfig(kind="muon", rate=4e-3, warmup=5, average=0.5)
    given = {
        "dtype": "float32",
        "workers": 0,
        "log_every": 10,
        "ocr_loss": 1.0,
        "batch": BUDGET,
        "optimizer": optimizer,
    }
    source = DataSource(shards=str(folder / "written"))
    return Recipe("writing", "localization", str(folder / "start"), steps, (source,), **(given | changes))  # type: ignore[arg-type]


def test_the_tower_learns_to_tell_them_and_the_head_stays_behind(folder: Path, tmp_path: Path) -> None:
    told: list[Progress] = []
    out = Trainer(recipe(folder, 60), tmp_path / "run", "cpu").run(told.append)
    losses = [progress.ocr_loss for progress in told]
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < 0.3 * losses[0]
    assert not any(name.startswith("ocr_head") for name, _ in load(out).named_parameters())


def test_an_interrupted_run_goes_on_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    asked = recipe(folder, 4, log_every=1)
    whole = Trainer(asked, tmp_path / "whole", "cpu")
    whole.run()
    first = Trainer(asked, tmp_path / "cut", "cpu")
    with pytest.raises(Interrupted):
        first.run(lambda progress: first.stop() if progress.step == 2 else None)
    second = Trainer(asked, tmp_path / "cut", "cpu")
    second.run()
    for name, parameter in whole.learner.model.named_parameters():
        assert torch.equal(parameter, second.learner.model.get_parameter(name)), name


def test_low_rank_changes_have_no_ocr_loss(folder: Path) -> None:
    with pytest.raises(RecipeError, match="0 beside low-rank changes"):
        recipe(folder, 1, lora=LoraConfig(rank=4))
