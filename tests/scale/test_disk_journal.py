"""What a server knows after it was killed, and what its folder holds."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from holotron.scale.disk_journal import DiskJournal
from holotron.scale.journal import JournalEntry
from tests.scale.in_threads import in_threads
from tests.scale.test_replicas import ADMIN, GREEDY, SCREEN, opened, turn
from tests.server.live import serving, write_checkpoint

ROOT = Path(__file__).parents[2]
ABOUT = {"owner": "anyone", "ttl": 60.0, "adapter": None, "created": 1.0}


def note(*messages: str, left: bool = False) -> dict[str, object]:
    asked = {"messages": [{"role": "user", "content": each} for each in messages], "tools": None}
    return {"asked": asked, "answer": ["yes", 7], "left": left, "keep_partial": False}


def facts(entry: JournalEntry) -> tuple[object, ...]:
    images = [(place, image.read()) for place, image in entry.images]
    return entry.id, entry.about, list(entry.tokens), entry.turns, images, entry.notes, entry.asked


def filled(journal: DiskJournal) -> list[JournalEntry]:
    """A session of three turns, one that went back to its last question, a fork and one that was never told of."""
    first = JournalEntry("first", {"adapter": None}, about=ABOUT)
    journal.write(first)
    for number in range(3):
        first.add_turn([1, 2, number], [(1, journal.keep(b"image %d" % number))], [8, 9], note("look"))
        journal.add(first)
    back = first.fork("back")
    back.rollback(-1, keep_prompt=True)
    journal.write(back)
    on = back.fork("on")
    on.add_turn([], [], [3], note("look"))
    journal.write(on)
    journal.write(JournalEntry("untold", {}))
    return [first, back, on]


def again(folder: Path, journal: DiskJournal) -> tuple[DiskJournal, dict[str, JournalEntry]]:
    journal.close()
    fresh = DiskJournal(folder, "tiny")
    return fresh, {entry.id: entry for entry in fresh.load()}


def test_the_folder_holds_what_is_open(tmp_path):
    journal = DiskJournal(tmp_path, "tiny")
    entries = filled(journal)
    before = {entry.id: facts(entry) for entry in entries}
    with pytest.raises(OSError, match="server that runs"):
        DiskJournal(tmp_path, "tiny")
    journal.close()
    with pytest.raises(OSError, match="sessions of tiny"):
        DiskJournal(tmp_path, "large")
    (tmp_path / "images" / "of nobody").write_bytes(b"x")
    fresh, loaded = again(tmp_path, journal)
    assert {id_: facts(entry) for id_, entry in loaded.items()} == before
    assert len(list((tmp_path / "images").iterdir())) == 3
    entries.clear()
    for id_ in ("first", "back"):
        fresh.remove(id_)
        del loaded[id_]
    loaded["on"].rollback(1)
    fresh.write(loaded["on"])
    gc.collect()
    assert len(list((tmp_path / "images").iterdir())) == 1
    assert [path.name for path in (tmp_path / "sessions").iterdir()] == ["on.jsonl"]
    last, loaded = again(tmp_path, fresh)
    assert len(loaded["on"].turns) == 1
    last.close()


def test_what_is_not_whole_ends_a_session_there(tmp_path):
    """As when the machine died: cut anywhere, a file gives the turns that are whole, and goes on from them."""
    journal = DiskJournal(tmp_path / "whole", "tiny")
    whole = filled(journal)[0]
    journal.close()
    data = (tmp_path / "whole" / "sessions" / "first.jsonl").read_bytes()
    ends = [place + 1 for place, byte in enumerate(data) if byte == 10]
    for cut in (0, 3, ends[0] - 1, ends[0], ends[1] + 5, ends[2] - 1, len(data) - 1):
        shutil.copytree(tmp_path / "whole", tmp_path / str(cut))
        (tmp_path / str(cut) / "sessions" / "first.jsonl").write_bytes(data[:cut] + b"\x00\r" * (cut % 2))
        journal = DiskJournal(tmp_path / str(cut), "tiny")
        found = {entry.id: entry for entry in journal.load()}.get("first")
        kept = sum(end <= cut for end in ends) - 1
        assert (found is None) == (kept < 0)
        if found is not None:
            assert found.turns == whole.turns[:kept]
            found.add_turn([5], [], [6], note("more"))
            journal.add(found)
            journal, loaded = again(tmp_path / str(cut), journal)
            assert facts(loaded["first"]) == facts(found)
        journal.close()
    first, _, last = (image.path for _, image in whole.images)
    first.write_bytes(b"other")
    last.unlink()
    journal = DiskJournal(tmp_path / "whole", "tiny")
    loaded = {entry.id: entry for entry in journal.load()}
    assert loaded["first"].turns == whole.turns[:2]
    with pytest.raises(OSError, match="altered"):
        loaded["first"].images[0][1].read()
    assert loaded["first"].images[1][1].read() == b"image 1"
    journal.close()


def test_a_turn_that_its_client_left_is_not_there_again(tmp_path):
    journal = DiskJournal(tmp_path, "tiny")
    entry = JournalEntry("left", {}, about=ABOUT)
    entry.add_turn([1], [], [2], note("one"))
    entry.add_turn([3], [], [4], note("two", left=True))
    journal.write(entry)
    journal, loaded = again(tmp_path, journal)
    assert list(loaded["left"].tokens) == [1, 2]
    journal.close()


@contextmanager
def front(checkpoint: Path, journal: Path):
    """A server in a process of its own, killed at the end."""
    words = [sys.executable, "-m", "tests.scale.front", str(checkpoint), str(journal)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def test_a_server_that_is_killed_in_mid_stream_has_its_sessions_again(tmp_path):
    checkpoint, journal = write_checkpoint(tmp_path / "tiny"), tmp_path / "journal"
    write_checkpoint(tmp_path / "other", seed=1)
    body = {"messages": [{"role": "user", "content": "Tell"}], "max_tokens": 2000, "stream": True, **GREEDY}
    with front(checkpoint, journal) as (url, process), httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        weights = {"path": str(tmp_path / "other"), "version": "v2"}
        http.post("/admin/update_weights", json=weights, headers=ADMIN).raise_for_status()
        session, closed = opened(http, ttl=77), opened(http)
        said = [turn(http, session, "Look", picture=SCREEN), turn(http, session, "And")]
        (fork,) = http.post(f"/v1/sessions/{session}/fork", json={"n": 1}).json()["data"]
        http.post(f"/v1/sessions/{fork['id']}/rollback", json={"turn": -1, "keep_prompt": True}).raise_for_status()
        http.delete(f"/v1/sessions/{closed}").raise_for_status()
        with http.stream("POST", f"/v1/sessions/{session}/turns", json=body) as stream:
            lines = stream.iter_lines()
            for _ in range(9):
                next(lines)
            process.kill()
            with pytest.raises(httpx.HTTPError):
                list(lines)
    with serving(checkpoint, replicas=in_threads(1, journal), admin_key="admin") as live, live.client() as http:
        told = {each["id"]: each for each in http.get("/v1/sessions").json()["data"]}
        assert told.keys() == {session, fork["id"]}
        assert told[session]["ttl"] == 77
        stays = opened(http)
        assert [turn(http, stays, "Look", picture=SCREEN), turn(http, stays, "And")] == said
        assert turn(http, session, "More", expected_turns=2) == turn(http, stays, "More")
        waiting = {"messages": [], "max_tokens": 12, **GREEDY}
        answer = http.post(f"/v1/sessions/{fork['id']}/turns", json=waiting).raise_for_status().json()
        assert answer["choices"][0]["token_ids"] == said[1]
        assert answer["weight_version"] == "v2"
        files = [json.loads(line[9:]) for line in (journal / "sessions" / f"{session}.jsonl").open()]
        assert len(files) == 1 + 3
    gc.collect()
    assert len(list((journal / "sessions").iterdir())) == 3  # a server that ends by itself leaves them there, too
    assert list((journal / "images").iterdir())
