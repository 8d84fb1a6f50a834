"""A fleet whose hosts are lost: every episode comes together once, as it was played. Without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holotron.agent.agent import Budget
from holotron.agent.chat import ChatModel
from holotron.agent.policy_format import BareJsonFormat
from holotron.env.task import Task
from holotron.episodes.fleet import Counters
from holotron.episodes.record import Outcome, PolicyInfo
from holotron.episodes.store import EpisodeStore
from holotron.scale.browser_host import BrowserHost, Played
from holotron.scale.host_fleet import TRIES, Host, HostGone, HostLost, play_on_hosts
from holotron.scale.ray_hosts import ClusterError, check_reachable
from holotron.suites.bandit import BanditSuite
from holotron.suites.play import Play
from tests.agent.replies import Recited

SUITE = BanditSuite()
POLICY = PolicyInfo(model="clicks left")
TASKS = SUITE.tasks(SUITE.names(), range(10))


def bandit(folder: Path) -> Play:
    return Play(SUITE, folder, POLICY, BareJsonFormat(SUITE.kinds), Budget(steps=1), SUITE.rule)


def left() -> Recited:
    return Recited({"action": "click", "x": 100, "y": 500})


class FallibleHost:
    """A host in this process that is lost, with all it plays, when it begins some of its tasks."""

    def __init__(
        self,
        host: BrowserHost,
        deaths: Sequence[int] = (),
        gone: bool = False,
        poison: str = "",
        sick: bool = False,
        most: int = 1000,
    ) -> None:
        self.host, self.deaths, self.gone, self.poison, self.sick, self.most = host, deaths, gone, poison, sick, most
        self.begun = 0
        self._lost = asyncio.Event()

    async def ready(self) -> None:
        await asyncio.sleep(0)
        if self.gone:
            raise HostGone("no machine has room for it")

    async def play(self, task: Task) -> Played:
        self.begun += 1
        if self.sick and self.begun <= self.most:
            return Played(Counters(infrastructure=1, problem="no route"), None)
        if self.begun in self.deaths or task.name == self.poison:
            self._lost.set()
            self._lost = asyncio.Event()
            raise HostLost("its process was killed")
        lost, playing = asyncio.create_task(self._lost.wait()), asyncio.create_task(self.host.play(task))
        await asyncio.wait([lost, playing], return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            lost.cancel()
            return playing.result()
        playing.cancel()
        raise HostLost("its process was killed")


def played(folder: Path, **hosts: dict[str, object]) -> Counters:
    """The tasks on hosts, which are described; two sessions each."""

    @asynccontextmanager
    async def open_hosts(
        how: Play, model: ChatModel | None, *, hosts: int, sessions: int, browsers: int
    ) -> AsyncIterator[Sequence[Host]]:
        assert hosts == len(described)
        opened = [BrowserHost(how, model, sessions, browsers) for _ in described]
        yield [FallibleHost(host, **how) for host, how in zip(opened, described, strict=True)]  # type: ignore[arg-type]
        await asyncio.gather(*(host.close() for host in opened))

    described = list(hosts.values())
    run = play_on_hosts(open_hosts, bandit(folder), TASKS, left(), sessions=2 * len(described), workers=len(described))
    return asyncio.run(asyncio.wait_for(run, 60))


def check_all_there(folder: Path, names: Sequence[str] = SUITE.names()) -> None:
    store = EpisodeStore(folder)
    infos = store.list_episodes()
    assert sorted((info.task.name, info.task.seed) for info in infos) == sorted(
        (n, s) for n in names for s in range(10)
    )
    for info in infos:
        assert info.outcome is not None
        assert info.outcome.reward == (info.task.name == "left")
        assert info.policy == POLICY
    assert store.check() == []


def test_lost_hosts_cost_only_what_they_played(tmp_path: Path) -> None:
    counters = played(tmp_path, one={"deaths": (2, 5, 6)}, two={"deaths": (1,)}, three={})
    check_all_there(tmp_path)
    assert (counters.finished, counters.succeeded, counters.steps, counters.infrastructure) == (30, 10, 30, 0)
    assert counters.retried >= 4
    assert counters.running == 0
    again = played(tmp_path, one={"gone": True})  # nothing is left, so no host is asked for
    assert (again.finished, again.skipped) == (0, 30)


def test_hosts_that_never_come_are_done_without_until_there_is_none(tmp_path: Path) -> None:
    assert played(tmp_path / "some", one={"gone": True}, two={}).finished == 30
    check_all_there(tmp_path / "some")
    with pytest.raises(HostGone, match="no machine has room"):
        played(tmp_path / "none", one={"gone": True}, two={"gone": True})


def test_a_task_that_ends_its_hosts_is_given_up(tmp_path: Path) -> None:
    counters = played(tmp_path, one={"poison": "middle"}, two={"poison": "middle"})
    check_all_there(tmp_path, ("left", "right"))
    assert (counters.finished, counters.infrastructure) == (20, 10)
    assert counters.retried >= 10 * (TRIES - 1)


def test_what_a_sick_host_cannot_play_another_does(tmp_path: Path) -> None:
    store = EpisodeStore(tmp_path)
    assert played(tmp_path, one={"sick": True}).infrastructure == 30
    assert store.list_episodes() == []  # nothing is scored
    with store.begin(TASKS[0], POLICY, SUITE.environment) as writer:
        writer.finish(Outcome(reason="infrastructure", detail="of an earlier run"))
    counters = played(tmp_path, one={"sick": True, "most": 4}, two={})
    assert (counters.finished, counters.infrastructure, counters.problem) == (30, 0, "no route")
    check_all_there(tmp_path)


def test_an_address_of_one_machine_is_refused_where_hosts_run_on_others() -> None:
    check_reachable("http://127.0.0.1:8000/v1", {"10.0.0.1"})
    check_reachable("http://10.0.0.1:8000/v1", {"10.0.0.1", "10.0.0.2"})
    check_reachable(None, {"10.0.0.1", "10.0.0.2"})
    with pytest.raises(ClusterError, match="address that they see"):
        check_reachable("http://localhost:8000/v1", {"10.0.0.1", "10.0.0.2"})
