"""Shares of sources that grow while they are read."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from holotron.episodes.examples import Example, ExampleError
from holotron.episodes.shards import ShardWriter
from holotron.model.text.policy_tokenizer import policy_tokenizer
from holotron.train import loader
from holotron.train.batches import Budget, Packer
from holotron.train.loader import BatchStream, SourceShare
from holotron.train.recipe import Source
from holotron.train.sequences import SequenceWriter

from .samples import CONFIG, sample

WRITER = SequenceWriter(policy_tokenizer(CONFIG), CONFIG)


def write(folder: Path, name: str, seeds: range) -> None:
    with ShardWriter(folder / name) as shards:
        for seed in seeds:
            made = sample(seed)
            shards.add(Example(f"number/{seed}", made.turns))


def seen(share: SourceShare, positions: range) -> set[int]:
    return {int(each.kind.split("/")[1]) for position in positions for each in share.draw(position)}


def test_what_comes_later_takes_part_from_the_next_round_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "LOOK_AGAIN_SECONDS", 0.0)
    write(tmp_path, "first", range(10))
    share = SourceShare(Source(str(tmp_path), growing=True), WRITER, 0, 1, seed=0)
    assert seen(share, range(5)) <= set(range(10))
    write(tmp_path, "second", range(10, 14))
    assert len(seen(share, range(5, 10))) == 5, "a round shows each sample once"
    assert seen(share, range(10, 24)) == set(range(14))


def test_a_long_source_is_begun_before_it_is_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "ENOUGH_TO_START", 4)
    write(tmp_path, "whole", range(40))
    share = SourceShare(Source(str(tmp_path), growing=True), WRITER, 0, 1, seed=0)
    assert seen(share, range(4)) == set(range(4))
    assert seen(share, range(4, 400)) == set(range(40))
    fixed = SourceShare(Source(str(tmp_path)), WRITER, 0, 1, seed=0)
    assert seen(fixed, range(40)) == set(range(40))


@pytest.mark.parametrize("shards", [1, 6])
def test_workers_share_a_growing_source_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    monkeypatch.setattr(loader, "LOOK_AGAIN_SECONDS", 0.0)
    for number in range(shards):
        write(tmp_path, f"early{number}", range(number * 6, number * 6 + 6))
    shares = [SourceShare(Source(str(tmp_path), growing=True), WRITER, worker, 2, seed=0) for worker in range(2)]
    for number in range(4):
        write(tmp_path, f"late{number}", range(1000 + number * 3, 1003 + number * 3))
    parts = [seen(share, range(300)) for share in shares]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(range(shards * 6)) | set(range(1000, 1012))


def test_an_empty_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match="no shards"):
        SourceShare(Source(str(tmp_path), growing=True), WRITER, 0, 1, seed=0)


def test_samples_of_one_screen_stay_together(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "screens") as shards:
        for seed in range(6):
            made = sample(seed, steps=1)
            for number in range(3):
                shards.add(Example(f"number/{3 * seed + number}", made.turns))
    together = SourceShare(Source(str(tmp_path)), WRITER, 0, 1, seed=0, shared=2)
    bunches = [together.draw(position) for position in range(12)]
    assert sorted(map(len, bunches)) == [1] * 6 + [2] * 6
    assert all(len({id(each.pictures[0]) for each in bunch}) == 1 for bunch in bunches)
    assert seen(together, range(12)) == set(range(18))
    alone = SourceShare(Source(str(tmp_path)), WRITER, 0, 1, seed=0)
    assert [len(alone.draw(position)) for position in range(18)] == [1] * 18


def test_a_batch_counts_a_shared_picture_once() -> None:
    first, *rest = (WRITER.write(sample(seed, steps=1, size=(64, 64))) for seed in range(4))
    bunch = (first, *(replace(each, pictures=first.pictures) for each in rest))
    room = Packer(CONFIG, Budget(tokens=512, patches=16, learned=128, sequences=8, images=1, shared=4)).room()
    assert room.takes(bunch)
    assert not room.takes((first, rest[0]))


def test_batches_are_filled_with_what_still_fits_and_lose_nothing(tmp_path: Path) -> None:
    """Long and short episodes: none is left out, and none is drawn twice in a round."""
    with ShardWriter(tmp_path / "mixed") as shards:
        for seed in range(60):
            made = sample(seed, steps=12 if seed % 5 == 0 else 1, size=(64, 64))
            shards.add(Example(f"number/{seed}", made.turns))
    packer = Packer(CONFIG, Budget(tokens=640, patches=256, learned=128, sequences=12, images=16))
    stream = iter(BatchStream([Source(str(tmp_path))], WRITER, packer, seed=0))
    drawn = [next(stream) for _ in range(12)]
    numbers = [int(kind.split("/")[1]) for each in drawn for kind in each.kinds]
    waiting = len(drawn[-1].cursor.aside)
    assert len(numbers) + waiting == drawn[-1].cursor.draws
    assert len(set(numbers[:40])) == 40
    assert sum(each.batch.used_patches for each in drawn) / (256 * 12) > 0.85
    # Taken up behind any batch, it goes on with the same ones.
    again = BatchStream([Source(str(tmp_path))], WRITER, packer, seed=0, cursors={0: drawn[6].cursor})
    assert [each.kinds for each in islice(again, 5)] == [each.kinds for each in drawn[7:]]
