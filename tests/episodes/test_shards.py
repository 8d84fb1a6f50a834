"""Shards: what is written is read back; what is cut short or half written is never taken for whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotron.episodes.examples import Example, ExampleError, ExampleTurn
from holotron.episodes.shards import ShardWriter, read_shard, shard_paths


def sample(number: int) -> Example:
    turns = (
        ExampleTurn(f"Task: {number} “ü”", '{"action":"click","x":1,"y":2}', bytes([number]) * 1000),
        ExampleTurn("", "plain\ntext", None, learn=False),
        ExampleTurn("", "last", b"second image"),
    )
    return Example("kind/a", turns, {"seed": number})


def test_there_and_back(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "out" / "part", shard_bytes=8000) as shards:
        for number in range(20):
            shards.add(sample(number))
    paths = shard_paths([tmp_path / "out"])
    assert len(paths) > 2
    assert paths == shard_paths([tmp_path / "out" / "part"])
    assert [got for path in paths for got in read_shard(path)] == [sample(number) for number in range(20)]


def test_a_second_writer_goes_on_behind_the_first(tmp_path: Path) -> None:
    for number in (0, 1):
        with ShardWriter(tmp_path / "part") as shards:
            shards.add(sample(number))
    assert [next(read_shard(path)) for path in shard_paths([tmp_path])] == [sample(0), sample(1)]


def test_an_unfinished_shard_is_not_seen(tmp_path: Path) -> None:
    shards = ShardWriter(tmp_path / "part")
    shards.add(sample(0))
    with pytest.raises(ExampleError, match="no shards at"):
        shard_paths([tmp_path])
    shards.close()
    assert len(shard_paths([tmp_path])) == 1


def test_damage_is_named(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "part") as shards:
        shards.add(sample(0))
    [path] = shard_paths([tmp_path])
    data = path.read_bytes()
    for cut in (600, 2000, 700):
        path.write_bytes(data[:cut])
        with pytest.raises(ExampleError, match=r"part-00000\.tar"):
            list(read_shard(path))
    path.write_bytes(data.replace(b'"answer"', b'"onswer"'))
    with pytest.raises(ExampleError, match="answer"):
        list(read_shard(path))
