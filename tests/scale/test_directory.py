"""Where sessions are and go, and what the journal knows of them, without engines."""

from __future__ import annotations

import asyncio
import gc
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from holotron.engine.session_state import Turn
from holotron.scale.directory import BLOCK, Directory, Place, Replica, beginnings
from holotron.scale.journal import MOST_BEHIND, ImageKeeper, JournalEntry, KeptImage


def replica(name: str, slots: int = 10) -> Replica:
    return Replica(name, SimpleNamespace(is_connected=True, stats=SimpleNamespace(values={"slots": slots})))


@pytest.fixture
def directory():
    made = Directory()
    made.replicas = {name: replica(name, slots) for name, slots in (("a", 10), ("b", 30))}
    return made


def test_sessions_fill_replicas_by_their_size(directory):
    for number in range(40):
        directory.put(Place(JournalEntry(str(number), {})), directory.roomiest())
    assert [len(each.sessions) for each in directory.replicas.values()] == [10, 30]
    directory.lose(directory.replicas["a"])
    assert sum(place.replica is None for place in directory.places.values()) == 10
    assert not directory.replicas["a"].sessions
    directory.replicas["a"].draining = True
    assert directory.roomiest() is directory.replicas["b"]
    assert directory.roomiest(besides=directory.replicas["b"]) is None
    directory.forget("39")
    assert len(directory.places) == 39


def test_a_replica_takes_more_while_all_is_well_and_fewer_when_it_thrashes():
    made = replica("a", 4)
    directory = Directory()
    directory.replicas = {"a": made}
    counts = {"slots": 4, "recomputed_tokens": 0, "preempted": 0, "epoch": 0}

    def told(**changes: int) -> None:
        counts.update(changes)
        made.client.stats = SimpleNamespace(values=dict(counts))

    def fill() -> int:
        taken = 0
        while (found := directory.for_new()) is not None:
            directory.put(Place(JournalEntry(str(len(directory.places)), {})), found)
            taken += 1
        return taken

    made.client.stats = SimpleNamespace(values={})
    assert directory.for_new(100) is made  # it has not said anything yet
    told()
    assert fill() == 4
    assert fill() == 0  # nothing was heard of it since
    told()
    assert fill() == 1
    told(recomputed_tokens=9)
    assert (fill(), made.room) == (0, 0)
    for number in range(1, 5):
        directory.forget(str(number))
    told()
    assert fill() == 4  # four of five stay its cap, and a quiet second makes one more of it
    told(recomputed_tokens=50, epoch=1)  # new weights have all sessions computed again: no sign
    assert fill() == 1
    told(recomputed_tokens=0)  # a new process
    for id_ in list(directory.places)[:4]:
        directory.forget(id_)
    made.arriving = 2
    assert (made.room, directory.for_new()) == (0, None)
    made.arriving = 1
    assert directory.for_new(2) is None  # of two forks, both or none
    assert directory.for_new() is made


def test_a_known_beginning_leads_to_where_it_lies(directory):
    tokens = list(range(3 * BLOCK))
    first = directory.for_request(None, beginnings(tokens, (), "key"))
    first.turns = 1000  # however busy it is
    longer = [*tokens, *range(BLOCK)]
    assert directory.for_request(None, beginnings(longer, (), "key")) is first
    for other in (beginnings(longer, (), "other key"), beginnings(tokens[::-1], (), "key")):
        assert directory.for_request(None, other) is not first
    assert directory.for_request("name", ()) is not first
    first.client.is_connected = False
    assert directory.for_request(None, beginnings(longer, (), "key")) is not first


def test_images_tell_beginnings_apart():
    tokens = [5] * 2 * BLOCK
    seen = [beginnings(tokens, [(BLOCK + 3, data)], None) for data in (b"one", b"two", b"one")]
    assert seen[0] == seen[2]
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] != seen[1][1]


def kept(keeper: ImageKeeper, *files: bytes) -> list[KeptImage]:
    async def all_of_them() -> list[KeptImage]:
        images = [await keeper.keep(data) for data in files]
        await asyncio.gather(*keeper._behind)
        return images

    return asyncio.run(all_of_them())


def test_the_journal_goes_with_the_engine():
    keeper = ImageKeeper(memory_bytes=4)
    entry = JournalEntry("a", {"adapter": None})
    first, second = kept(keeper, b"png!", b"more")
    entry.add_turn([1, 2], [(1, first)], [3])
    entry.add_turn([4], [(0, second)], [5, 6])
    assert list(entry.tokens) == [1, 2, 3, 4, 5, 6]
    assert entry.turns == [Turn(0, 2, 3), Turn(3, 4, 6)]
    assert [(start, image.read()) for start, image in entry.images] == [(1, b"png!"), (3, b"more")]
    earlier = entry.fork("b", 1)
    assert (list(earlier.tokens), earlier.turns, len(earlier.images)) == ([1, 2, 3], [Turn(0, 2, 3)], 1)
    same = entry.fork("c")
    same.rollback(-1, keep_prompt=True)
    assert list(same.tokens) == [1, 2, 3, 4]
    same.add_turn([], [], [9])
    assert same.turns[-1] == Turn(3, 4, 5)
    same.rollback(7)  # of a turn that never ended
    assert list(same.tokens) == [1, 2, 3, 4, 9]
    same.rollback(0)
    assert not same.tokens
    assert not same.images
    assert list(entry.tokens) == [1, 2, 3, 4, 5, 6]
    folder = Path(keeper._folder.name)
    assert len(list(folder.iterdir())) == 1  # the earlier image is on disk, and goes with the last that has it
    entry.rollback(0)
    del earlier, first, second
    gc.collect()
    assert not list(folder.iterdir())
    keeper.close()
    assert not folder.exists()


def test_turns_wait_for_a_disk_that_is_far_behind(monkeypatch):
    """And not before: writing an image takes as long as all else that is done for its turn here."""
    keeper, may_write, write = ImageKeeper(memory_bytes=4), threading.Event(), Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda path, data: may_write.wait(30) and write(path, data))

    async def scenario() -> None:
        images = [await keeper.keep(b"%04d" % number) for number in range(MOST_BEHIND + 1)]
        waiting = asyncio.ensure_future(keeper.keep(b"last"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        may_write.set()
        images.append(await waiting)
        assert [image.read() for image in images[-2:]] == [b"%04d" % MOST_BEHIND, b"last"]
        await asyncio.gather(*keeper._behind)
        assert [image.read() for image in images[:2]] == [b"0000", b"0001"]
        assert len(list(Path(keeper._folder.name).iterdir())) == MOST_BEHIND + 1

    asyncio.run(scenario())
    keeper.close()


def test_what_a_full_disk_does_not_take_stays_in_memory(caplog):
    keeper = ImageKeeper(memory_bytes=4)
    shutil.rmtree(keeper._folder.name)
    assert [image.read() for image in kept(keeper, b"png!", b"more")] == [b"png!", b"more"]
    assert "stays in memory" in caplog.text
    keeper.close()
