"""Shares of sources, and batches filled from them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from holotron.episodes.examples import Example, ExampleError
from holotron.episodes.shards import ShardWriter
from holotron.model.errors import ModelError
from holotron.train.batches import BatchBudget, Packer
from holotron.train.loader import BatchStream, Drawn, SourceShare, load_batches
from holotron.train.recipe import DataSource
from holotron.train.sequences import SequenceWriter

from .samples import CONFIG, policy_writer, sample, write_store

WRITER = SequenceWriter(policy_writer(CONFIG))


def write(folder: Path, name: str, seeds: range) -> None:
    with ShardWriter(folder / name) as shards:
        for seed in seeds:
            made = sample(seed)
            shards.add(Example(f"number/{seed}", made.turns))


def seen(share: SourceShare, positions: range) -> set[int]:
    return {int(each.kind.split("/")[1]) for position in positions for each in share.draw(position)}


@pytest.mark.parametrize("shards", [1, 6])
def test_workers_share_a_source_between_them(tmp_path: Path, shards: int) -> None:
    for number in range(shards):
        write(tmp_path, f"part{number}", range(number * 6, number * 6 + 6))
    shares = [SourceShare(DataSource(shards=str(tmp_path)), WRITER, worker, 2, seed=0) for worker in range(2)]
    parts = [seen(share, range(3 * shards)) for share in shares]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == set(range(shards * 6))
    assert seen(shares[0], range(3 * shards, 6 * shards)) == parts[0], "a round shows each example once"


def test_an_empty_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExampleError, match="no shards"):
        SourceShare(DataSource(shards=str(tmp_path)), WRITER, 0, 1, seed=0)
    write(tmp_path, "one", range(1))
    with pytest.raises(ExampleError, match=r"nothing to learn at .* for stream 1 of 2"):
        SourceShare(DataSource(shards=str(tmp_path)), WRITER, 1, 2, seed=0)


def test_samples_of_one_screen_stay_together(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "screens") as shards:
        for seed in range(6):
            made = sample(seed, steps=1)
            for number in range(3):
                shards.add(Example(f"number/{3 * seed + number}", made.turns))
    together = SourceShare(DataSource(shards=str(tmp_path)), WRITER, 0, 1, seed=0, shared=2)
    bunches = [together.draw(position) for position in range(12)]
    assert sorted(map(len, bunches)) == [1] * 6 + [2] * 6
    assert all(len({id(each.pictures[0]) for each in bunch}) == 1 for bunch in bunches)
    assert seen(together, range(12)) == set(range(18))
    alone = SourceShare(DataSource(shards=str(tmp_path)), WRITER, 0, 1, seed=0)
    assert [len(alone.draw(position)) for position in range(18)] == [1] * 18


def test_a_batch_counts_a_shared_picture_once() -> None:
    first, *rest = (WRITER.write(sample(seed, steps=1, size=(64, 64))) for seed in range(4))
    bunch = (first, *(replace(each, pictures=first.pictures) for each in rest))
    room = Packer(CONFIG, BatchBudget(tokens=512, patches=16, learned=128, sequences=8, images=1, shared=4)).room()
    assert room.takes(bunch)
    assert not room.takes((first, rest[0]))


def test_batches_are_filled_with_what_still_fits_and_lose_nothing(tmp_path: Path) -> None:
    """Long and short episodes: none is left out, and none is drawn twice in a round."""
    with ShardWriter(tmp_path / "mixed") as shards:
        for seed in range(60):
            made = sample(seed, steps=12 if seed % 5 == 0 else 1, size=(64, 64))
            shards.add(Example(f"number/{seed}", made.turns))
    packer = Packer(CONFIG, BatchBudget(tokens=640, patches=256, learned=128, sequences=12, images=16))
    stream = iter(BatchStream([DataSource(shards=str(tmp_path))], WRITER, packer, seed=0))
    drawn = [next(stream)[0] for _ in range(12)]
    numbers = [int(kind.split("/")[1]) for each in drawn for kind in each.kinds]
    waiting = len(drawn[-1].cursor.aside)
    assert len(numbers) + waiting == drawn[-1].cursor.draws
    assert len(set(numbers[:40])) == 40
    assert sum(each.batch.used_patches for each in drawn) / (256 * 12) > 0.85
    # Taken up behind any batch, it goes on with the same ones.
    again = BatchStream([DataSource(shards=str(tmp_path))], WRITER, packer, seed=0, cursors={0: drawn[6].cursor})
    assert [each.kinds for (each,) in islice(again, 5)] == [each.kinds for each in drawn[7:]]


def test_data_that_was_moved_is_drawn_in_the_same_order(tmp_path: Path) -> None:
    for place in ("here", "elsewhere"):
        write(tmp_path / place, "part", range(12))
    packer = Packer(CONFIG, BatchBudget(tokens=640, patches=256, learned=128, sequences=12, images=16))

    def kinds(*places: str) -> list[tuple[str, ...]]:
        sources = [DataSource(shards=place) for place in places]
        return [drawn.kinds for (drawn,) in islice(BatchStream(sources, WRITER, packer, 0, folder=tmp_path), 3)]

    assert kinds("here") == kinds("elsewhere")
    [both, *_], [alone, *_] = kinds("here", "elsewhere"), kinds("here")
    assert len(set(both)) > len(both) / 2, "two sources with the same examples are drawn in orders of their own"
    assert len(alone) == len(set(alone))


@pytest.mark.parametrize("strange", [-1, CONFIG.vocab_size])
def test_a_token_that_the_model_has_not_is_refused(strange: int) -> None:
    written = WRITER.write(sample(0))
    token_ids = written.token_ids.copy()
    token_ids[-2] = strange
    packer = Packer(CONFIG, BatchBudget(tokens=640, patches=256, learned=128, sequences=12, images=16))
    with pytest.raises(ModelError, match=f"token id {strange} is not among the 2368 that tiny-policy has"):
        packer.build([replace(written, token_ids=token_ids)])


def test_what_a_worker_refuses_is_told_in_its_own_words(tmp_path: Path) -> None:
    write(tmp_path, "part", range(4))
    packer = Packer(CONFIG, BatchBudget(tokens=16, patches=16, learned=8, sequences=1, images=1))
    made = load_batches(BatchStream([DataSource(shards=str(tmp_path))], WRITER, packer, seed=0), workers=1)
    with pytest.raises(ExampleError, match=r"^none of \d+ examples in a row fits into a batch"):
        next(made)


def test_workers_outlive_the_signal_that_stops_a_whole_run(
    tmp_path: Path, begun: Callable[[], list[BaseProcess]]
) -> None:
    write(tmp_path, "part", range(4))
    packer = Packer(CONFIG, BatchBudget(tokens=640, patches=256, learned=128, sequences=12, images=16))
    made = load_batches(BatchStream([DataSource(shards=str(tmp_path))], WRITER, packer, seed=0), workers=1)
    next(made)
    [worker] = begun()
    assert worker.pid is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker.pid, number)
    for _ in range(12):  # more than were made before
        next(made)
    assert worker.is_alive()


def test_batches_from_a_store_go_on_anywhere_and_leave_out_what_was_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_store(tmp_path / "store")
    source = DataSource(store="store", task_weights={"task-1": 2.5, "task-0": 0.5})
    packer = Packer(CONFIG, BatchBudget(tokens=640, patches=256, learned=128, sequences=12, images=16))

    def stream(**more: object) -> Iterator[Drawn]:
        made = BatchStream([source], WRITER, packer, seed=0, folder=tmp_path, **more)  # type: ignore[arg-type]
        return (drawn for (drawn,) in made)

    drawn = list(islice(stream(), 30))
    again = list(islice(stream(cursors={0: drawn[9].cursor}), 20))
    for one, other in zip(drawn[10:], again, strict=True):
        assert one.kinds == other.kinds
        assert torch.equal(one.batch.token_ids_T, other.batch.token_ids_T)
        assert torch.equal(one.batch.targets_N, other.batch.targets_N)
    kinds = Counter(kind for each in drawn for kind in each.kinds)
    assert kinds.keys() == {"squares/task-0", "squares/task-1", "dagger/squares/task-0"}
    assert 3 < kinds["squares/task-1"] / kinds["squares/task-0"] < 16, "2.5 to 0.5, of 12 and 6 episodes"
    # An image that is damaged while the run goes on takes its examples with it, and nothing else.
    going = stream()
    next(going)
    for path in sorted((tmp_path / "store" / "images").rglob("*.png"))[:5]:
        path.write_bytes(b"damaged")
    assert len(list(islice(going, 10))) == 10
    assert "an example is left out" in caplog.text
    assert "was changed" in caplog.text


def test_a_store_is_held_as_an_index(tmp_path: Path) -> None:
    """Images are read when they are drawn, not before."""
    write_store(tmp_path / "store")
    share = SourceShare(DataSource(store="store"), WRITER, 0, 1, seed=0, folder=tmp_path)
    for path in (tmp_path / "store" / "images").rglob("*.png"):
        path.unlink()
    assert share.draw(0) == ()


def test_a_store_is_written_in_the_words_of_a_family(tmp_path: Path) -> None:
    write_store(tmp_path / "store", 2)
    sequences = {}
    for name in ("nano", "holo1", "holotron"):
        share = SourceShare(DataSource(store="store", format=name), WRITER, 0, 1, seed=0, folder=tmp_path)
        [sequences[name]] = share.draw(0)
    tokenizer = WRITER._writer.tokenizer
    learned = {name: tokenizer.decode(each.token_ids[each.learn].tolist()) for name, each in sequences.items()}
    assert learned["nano"].startswith('{"action":"click","x":')
    assert learned["holo1"].startswith('{"note":"","thought":"","action":{"action":"click_element",')
    assert learned["holotron"].startswith('{"note":null,"thought":"","tool_call":{"tool_name":"click_desktop",')
    assert sequences["holo1"].pictures[0].size == (56, 56), "as it is sent"
    told = tokenizer.decode(sequences["holotron"].token_ids.tolist())
    assert "You are HoloNano" in told
    with pytest.raises(ValueError, match="no policy format 'fluent'"):
        DataSource(store="store", format="fluent")
    with pytest.raises(ValueError, match="learned as they are"):
        DataSource(shards="tar", format="holo2")
