"""Whatever kills a writer, and whenever: what was finished is whole, and the rollout goes on from there."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holotron.episodes.errors import BeingWritten, Damaged, EpisodeError, StoreFull
from holotron.episodes.record import Outcome
from holotron.episodes.store import EpisodeStore
from holotron.episodes.transfer import Format, export
from holotron.episodes.writer import Sync
from tests.episodes.faults import NEEDS_ROOM, Operations, disk_full
from tests.episodes.rollout import DONE, FULL
from tests.episodes.samples import (
    ENVIRONMENT,
    POLICY,
    STEPS_PER_TASK,
    a_step,
    a_task,
    an_outcome,
    check_store,
    png,
    roll_out,
    write_task,
)

ROOT = Path(__file__).parents[2]


class Rollouts:
    """Rollouts in processes of their own."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [sys.executable, "-m", "tests.episodes.rollout"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        assert self._line() == "ready"

    def start(self, store: Path, tasks: int, **options: Any) -> int:
        self._pid = self._ask({"store": str(store), "tasks": tasks, **options})
        return self._pid

    def end(self) -> int:
        """Wait for the end of the last one and return its exit code."""
        return self._ask({"end": self._pid})

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def rollouts() -> Iterator[Rollouts]:
    rollouts = Rollouts()
    yield rollouts
    rollouts.close()


# ---- killed ----


def test_killed_at_random_moments(rollouts: Rollouts, folder: Path) -> None:
    chance = random.Random(7)
    killed, tasks, place = 0, 12, folder / "0"
    while killed < 40:
        before = check_store(EpisodeStore(place), tasks)
        pid = rollouts.start(place, tasks)
        time.sleep(chance.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        killed += rollouts.end() == -signal.SIGKILL
        done = check_store(EpisodeStore(place), tasks)
        assert done >= before
        if done == tasks:
            assert EpisodeStore(place).completed_keys() == {a_task(number).key for number in range(tasks)}
            place = folder / str(killed)
    rollouts.start(place, tasks)
    assert rollouts.end() == DONE
    assert check_store(EpisodeStore(place), tasks) == tasks


@pytest.mark.parametrize("sync", ["episode", "step"])
def test_killed_at_every_file_operation(rollouts: Rollouts, folder: Path, sync: Sync) -> None:
    at, rounds = 1, 0
    while True:
        place = folder / str(at)
        rollouts.start(place, 2, die_at=at, sync=sync)
        end = rollouts.end()
        store = EpisodeStore(place)
        if end == DONE:
            break
        assert end == -signal.SIGKILL
        assert check_store(store, 2) < 2 or at > 10
        rollouts.start(place, 2, sync=sync)
        assert rollouts.end() == DONE
        assert check_store(store, 2) == 2
        at, rounds = at + 1, rounds + 1
    assert rounds > 30


# ---- torn and damaged ----


@pytest.mark.parametrize("tail", [b'{"index":2', b"\x00" * 50, b"{", '{"note":"é'.encode()[:-1]])
def test_a_torn_last_line_is_ignored(tmp_path: Path, tail: bytes) -> None:
    store = EpisodeStore(tmp_path)
    with store.begin(a_task(1), POLICY, ENVIRONMENT) as writer:
        writer.add_step(a_step(1, 0), png(1))
        writer.add_step(a_step(1, 1), png(2))
    steps = writer.folder / "steps.jsonl"
    steps.write_bytes(steps.read_bytes() + tail)
    assert len(store.read(writer.info.id).steps) == 2
    write_task(store, 1)
    assert check_store(store, 2) == 1


def test_damage_is_named_and_the_rest_stays_readable(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    infos = [write_task(store, number) for number in range(5)]
    folders = [tmp_path / "episodes" / info.id for info in infos]
    (folders[0] / "meta.json").write_text('{"schema":1')
    lines = (folders[1] / "steps.jsonl").read_bytes().splitlines(keepends=True)
    (folders[1] / "steps.jsonl").write_bytes(lines[0] + b"{}\n" + lines[2])
    (folders[2] / "steps.jsonl").write_bytes(lines[0])
    image = store.read(infos[3].id).steps[1].observation.image
    assert image is not None
    store.images.path_of(image).unlink()

    with pytest.raises(Damaged, match=r"meta\.json is not valid JSON"):
        store.read(infos[0].id)
    with pytest.raises(Damaged, match=r"steps\.jsonl has \d+ bytes, and \d+ were written"):
        store.read(infos[1].id)
    salvaged = store.steps(infos[1].id, salvage=True)
    assert next(salvaged).thought == "step 0 of 1"
    with pytest.raises(Damaged, match=r"steps\.jsonl:2 is not a valid Step: index: Field required"):
        next(salvaged)
    with pytest.raises(Damaged, match="bytes"):
        store.read(infos[2].id)
    with pytest.raises(Damaged, match=rf"the image .*{image}\.png is missing"):
        store.image(image)
    assert store.read(infos[3].id).outcome is not None
    assert store.read(infos[4].id).steps

    seen: list[Damaged] = []
    assert [info.id for info in store.list_episodes(on_damage=seen.append)] == [info.id for info in infos[1:]]
    assert len(seen) == 1
    problems = store.check()
    assert len(problems) == 5  # the image is missing in two episodes: tasks 3 and 4 share it
    assert sum(image in problem for problem in problems) == 2


def test_changed_bytes_are_noticed(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    info = write_task(store, 1)
    steps = tmp_path / "episodes" / info.id / "steps.jsonl"
    steps.write_bytes(steps.read_bytes().replace(b"remember", b"REMEMBER"))
    with pytest.raises(Damaged, match="was changed after it was written"):
        store.read(info.id)
    path = store.images.path_of(next(iter(store.steps(info.id, salvage=True))).observation.image or "")
    path.write_bytes(png(200))
    with pytest.raises(Damaged, match="its bytes do not match its name"):
        store.image(path.stem)


def test_a_damaged_episode_can_be_done_again(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    for damage in ("meta.json", "steps.jsonl"):
        info = write_task(store, 1)
        (tmp_path / "episodes" / info.id / "meta.json").write_text("")
        (tmp_path / "episodes" / info.id / damage).unlink()
        assert store.completed_keys() == set()
    write_task(store, 1)
    assert check_store(store, 2) == 1
    assert len(list((tmp_path / "abandoned").iterdir())) == 2


# ---- full ----


@pytest.mark.parametrize("sync", ["episode", "step", "never"])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk_at_every_operation(folder: Path, sync: Sync, lasting: bool) -> None:
    at = 1
    while True:
        store = EpisodeStore(folder / str(at), sync=sync)
        with Operations(at, disk_full, NEEDS_ROOM, lasting).watched() as operations:
            try:
                roll_out(store, 2)
            except StoreFull as error:
                assert "make room and run the same again" in str(error)  # noqa: PT017
        check_store(store, 2)
        roll_out(store, 2)
        assert check_store(store, 2) == 2
        leftovers = list((folder / str(at)).rglob(".*.partial"))
        assert leftovers == []
        if operations.count < at:
            break
        at += 1
    assert at > 20


def test_the_same_writer_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path, sync="step")
    writer = store.begin(a_task(0), POLICY, ENVIRONMENT)
    failures = 0
    for index in range(STEPS_PER_TASK):
        for at in range(1, 20):
            with Operations(at, disk_full, NEEDS_ROOM).watched():
                try:
                    writer.add_step(a_step(0, index), png(index))
                    break
                except StoreFull:
                    failures += 1
    for at in range(1, 20):
        with Operations(at, disk_full, NEEDS_ROOM).watched():
            try:
                writer.finish(an_outcome(0))
                break
            except StoreFull:
                failures += 1
    assert failures > 10
    assert check_store(store, 1) == 1


def test_a_step_that_did_not_fit_leaves_nothing(folder: Path) -> None:
    store = EpisodeStore(folder)
    with store.begin(a_task(0), POLICY, ENVIRONMENT) as writer:
        writer.add_step(a_step(0, 0), png(0))
        with Operations(1, disk_full, ("write",)).watched(), pytest.raises(StoreFull, match=r"steps\.jsonl"):
            writer.add_step(a_step(0, 1), png(0))
        writer.finish(Outcome(reason="stopped"))
    assert len(store.read(writer.info.id).steps) == 1
    assert store.check() == []


def test_an_image_that_does_not_fit_is_not_there(folder: Path) -> None:
    images = EpisodeStore(folder).images
    large = png(1) + bytes(5000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StoreFull, match=r"\.png could not be written"):
            images.put(large, sync=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert images.get(images.put(large, sync=True)) == large


def test_a_real_limit_on_file_sizes(rollouts: Rollouts, folder: Path) -> None:
    full = 0
    for limit in (1, 60, 200, 400, 700, 1000, 1500, 2000, 10**6):
        place = folder / str(limit)
        rollouts.start(place, 2, file_bytes=limit)
        end = rollouts.end()
        store = EpisodeStore(place)
        assert end in (DONE, FULL)
        full += end == FULL
        assert check_store(store, 2) == (2 if end == DONE else 0)
        rollouts.start(place, 2)
        assert rollouts.end() == DONE
        assert check_store(store, 2) == 2
    assert 5 <= full < 9


@pytest.mark.parametrize("format", ["parquet", "responses"])
def test_a_full_disk_while_exporting(rollouts: Rollouts, folder: Path, format: Format) -> None:
    store = EpisodeStore(folder / "store")
    roll_out(store, 3)
    path = folder / "export"
    for limit in (1, 1000, 3000):
        rollouts.start(store.folder, 3, file_bytes=limit, export=format, path=str(path))
        assert rollouts.end() == FULL
        assert list(folder.iterdir()) == [store.folder]
    assert export(store, path, format) == 3


# ---- at once ----


def test_two_processes_share_the_work(rollouts: Rollouts, tmp_path: Path) -> None:
    other = Rollouts()
    try:
        for _ in range(3):
            rollouts.start(tmp_path, 40)
            other.start(tmp_path, 40)
            assert (rollouts.end(), other.end()) == (DONE, DONE)
        store = EpisodeStore(tmp_path)
        # One that found an episode being written left it to the other.
        assert check_store(store, 40) == 40
        assert not (tmp_path / "abandoned").exists()
    finally:
        other.close()


def test_one_writer_per_episode(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    with store.begin(a_task(0), POLICY, ENVIRONMENT) as writer:
        assert store.is_being_written(writer.info.id)
        with pytest.raises(BeingWritten, match="is being written by another writer"):
            store.begin(a_task(0), POLICY, ENVIRONMENT)
        with store.begin(a_task(0, sample=1), POLICY, ENVIRONMENT) as second:
            assert second.info.id != writer.info.id
    assert not store.is_being_written(writer.info.id)
    with pytest.raises(EpisodeError, match="is closed"):
        writer.add_step(a_step(0, 0))
    assert len(store.list_episodes(finished=False)) == 2


def test_what_killed_writers_left_does_no_harm(rollouts: Rollouts, tmp_path: Path) -> None:
    for at in range(1, 25):
        rollouts.start(tmp_path, 1, die_at=at, sync="step")
        assert rollouts.end() == -signal.SIGKILL
    assert list(tmp_path.rglob(".*.partial"))
    check_store(EpisodeStore(tmp_path), 1)
