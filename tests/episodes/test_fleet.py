"""Fleets under fire: browsers or the whole process killed, the disk full. Twenty episodes come out all the same."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from holotron.agent.agent import Ending
from holotron.agent.baselines import RandomModel
from holotron.agent.chat import ModelUnavailable
from holotron.agent.policy_format import BareJsonFormat
from holotron.env.task import Task
from holotron.episodes import files, writer
from holotron.episodes.errors import StoreFull
from holotron.episodes.fleet import Fleet
from holotron.episodes.record import EnvironmentInfo, PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.eval.evaluate import Evaluation, evaluate
from holotron.suites.suite import find_suite
from tests.env.driver import descendants
from tests.suites.miniwob_driver import needs_chromium

pytestmark = needs_chromium
TASKS = ("click-test", "click-button", "enter-text", "focus-text", "click-link")
SEEDS = tuple(range(4))


def twenty(folder: Path, policy: str = "scripted", **changes) -> Evaluation:
    suite = find_suite("miniwob")
    form = BareJsonFormat(suite.kinds)
    protocols = (suite.find_protocol("browsergym-125", TASKS),)
    return replace(Evaluation(suite, protocols, folder, policy, form, SEEDS, sessions=4, browsers=2), **changes)


def check_all_there(folder: Path) -> None:
    """Every episode once, each with the reward that its script earns."""
    store = EpisodeStore(folder)
    infos = list(store.list_episodes())
    keys = [(info.task.name, info.task.seed) for info in infos]
    assert sorted(keys) == sorted((task, seed) for task in TASKS for seed in SEEDS)
    assert all(info.outcome is not None and info.outcome.success for info in infos)
    assert store.check() == []


def test_browsers_killed_in_the_middle(tmp_path):
    async def main():
        killed = 0

        async def kill() -> None:
            nonlocal killed
            while killed < 5:
                await asyncio.sleep(0.6)
                found = descendants(os.getpid())
                browsers = [
                    pid for pid, line in found.items() if "--remote-debugging" in line and "--type=" not in line
                ]
                if browsers and any(tmp_path.rglob("steps.jsonl")):  # in the midst of episodes
                    os.kill(browsers[killed % len(browsers)], signal.SIGKILL)
                    killed += 1

        killing = asyncio.create_task(kill())
        report = await evaluate(twenty(tmp_path), None)
        killing.cancel()
        return report, killed

    report, killed = asyncio.run(main())
    assert killed
    assert report["successes"] == report["episodes"] == 20
    check_all_there(tmp_path)


def test_workers_killed_in_the_middle(tmp_path, begun):
    """What a worker had in hand when it was killed is played by others; nothing that was finished is played again."""

    async def main():
        killed: list[int] = []

        def kill(counters) -> None:
            workers = [child.pid for child in begun()]
            if counters.finished >= 6 * (len(killed) + 1) and len(killed) < 2 and workers:
                killed.append(workers[0])
                os.kill(workers[0], signal.SIGKILL)

        return await evaluate(twenty(tmp_path, workers=2, browsers=1), None, kill), killed

    report, killed = asyncio.run(main())
    assert killed
    assert report["successes"] == report["episodes"] == 20
    check_all_there(tmp_path)


def test_the_whole_process_killed_again_and_again(tmp_path):
    words = [sys.executable, "-m", "holotron.cli.main", "eval", "miniwob", "--baseline", "scripted"]
    words += ["--tasks", ",".join(TASKS), "--seeds", ",".join(map(str, SEEDS)), "--out", str(tmp_path)]
    words += ["--sessions", "4", "--json"]
    store = EpisodeStore(tmp_path)
    for wanted in (4, 12):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while sum(info.finished for info in store.list_episodes()) < wanted:
            assert process.poll() is None, "it ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.wait()
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]
    report = json.loads(done.stdout)
    assert report["successes"] == report["episodes"] == 20
    assert report["missing"] == 0
    check_all_there(tmp_path)


def test_a_full_disk_stops_the_fleet_and_loses_nothing(tmp_path, monkeypatch):
    left = 60_000
    original = files.write_all

    def scarce(descriptor: int, data: bytes) -> None:
        nonlocal left
        if len(data) > left:
            original(descriptor, data[:left])
            left = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= len(data)
        original(descriptor, data)

    for module in (files, writer):
        if hasattr(module, "write_all"):
            monkeypatch.setattr(module, "write_all", scarce)
    run = twenty(tmp_path, "random")  # playing at random takes every step there is
    with pytest.raises(StoreFull, match="make room"):
        asyncio.run(evaluate(run, RandomModel(0)))
    finished = {info.id: info.outcome for info in EpisodeStore(tmp_path).list_episodes() if info.finished}
    assert 0 < len(finished) < len(run.tasks)
    left = 10**9
    report = asyncio.run(evaluate(run, RandomModel(0)))
    assert report["episodes"] == len(run.tasks)
    after = {info.id: info.outcome for info in EpisodeStore(tmp_path).list_episodes()}
    assert {id_: after[id_] for id_ in finished} == finished  # what was finished was not played again
    assert EpisodeStore(tmp_path).check() == []


class Flaky:
    """A model that is away for the first tries of each task."""

    def __init__(self, task: Task, tries: dict[str, int], away: int) -> None:
        self.task = task
        self._tries = tries
        self._away = away

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def play(self, record):
        self._tries[self.task.text] = self._tries.get(self.task.text, 0) + 1
        if self._tries[self.task.text] <= self._away:
            raise ModelUnavailable("the server restarts")
        return Ending("done", success=False, reward=0.0)


@pytest.mark.parametrize("away", [0, 2, 9])
def test_only_the_infrastructure_is_tried_again(tmp_path, away):
    tries: dict[str, int] = {}
    fleet = Fleet(
        EpisodeStore(tmp_path),
        lambda task: Flaky(task, tries, away),
        PolicyInfo(model="flaky"),
        EnvironmentInfo(name="none"),
        sessions=3,
        retries=3,
        pause=0.001,
    )
    counters = asyncio.run(fleet.run([Task(text=f"task {i}", url="http://x") for i in range(5)]))
    if away == 9:
        assert (counters.finished, counters.infrastructure) == (0, 5)
        assert not EpisodeStore(tmp_path).completed_keys()
    else:
        assert (counters.finished, counters.infrastructure, counters.retried) == (5, 0, 5 * away)
        assert set(tries.values()) == {away + 1}  # a failure of the policy is final


def test_an_episode_that_was_begun_while_the_fleet_ended_is_let_go_of(tmp_path, monkeypatch):
    store, task = EpisodeStore(tmp_path), Task(text="a task", url="http://x")
    begin, beginning, go_on = store.begin, threading.Event(), threading.Event()

    def slow(*arguments):
        beginning.set()
        go_on.wait(30)
        return begin(*arguments)

    monkeypatch.setattr(store, "begin", slow)
    policy, environment = PolicyInfo(model="none"), EnvironmentInfo(name="none")
    fleet = Fleet(store, lambda task: Flaky(task, {}, 0), policy, environment, sessions=1)

    async def cancelled():
        playing = asyncio.create_task(fleet.play(iter([task])))
        await asyncio.to_thread(beginning.wait, 30)
        playing.cancel()
        await asyncio.sleep(0)  # the cancellation arrives while a thread begins the episode
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await playing

    asyncio.run(cancelled())
    [info] = store.list_episodes()
    assert not store.is_being_written(info.id)
