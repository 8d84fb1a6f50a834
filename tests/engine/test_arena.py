"""The host memory for offloaded sessions: no block twice, no byte lost, and less of it where the machine has less."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holotron.engine import arena as arena_module
from holotron.engine.arena import Arena


@given(st.lists(st.integers(1, 700), max_size=60), st.integers(1, 9))
def test_blocks_belong_to_one(sizes, per_chunk):
    arena = Arena(6400, 64)
    arena._per_chunk = per_chunk
    held = {}
    for number, size in enumerate(sizes):
        blocks = arena.allocate(size)
        free = arena.blocks - sum(map(len, (b for b, _ in held.values())))
        assert (blocks is not None) == (arena.blocks_for(size) <= free)
        if blocks is None:
            arena.release(held.pop(next(iter(held)))[0])
            continue
        held[number] = blocks, size
        for view in arena.views(blocks, size):
            view.fill_(number)
        assert sum(len(view) for view in arena.views(blocks, size)) == size
    for number, (blocks, size) in held.items():
        assert all((view == number).all() for view in arena.views(blocks, size))


def test_a_machine_with_too_little_memory(monkeypatch, caplog):
    monkeypatch.setattr(arena_module, "CHUNK_BYTES", 256)
    arena = Arena(1024, 64)
    empty = torch.empty

    def scarce(*shape, **options):
        if len(arena._chunks) == 2:
            raise RuntimeError("out of memory")
        return empty(*shape, **options)

    monkeypatch.setattr(torch, "empty", scarce)
    first, second = arena.allocate(300), arena.allocate(190)
    assert len({*first, *second}) == 8
    assert arena.allocate(400) is None
    assert "no host memory" in caplog.text
    arena.release(first)
    assert arena.allocate(300) is not None


def test_releasing_twice_is_noticed():
    arena = Arena(256, 64)
    blocks = arena.allocate(64)
    arena.release(blocks)
    with pytest.raises(AssertionError, match="twice"):
        arena.release(blocks)
