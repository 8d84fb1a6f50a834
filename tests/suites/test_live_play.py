"""Tasks that are given while others are played: what ends, what fails, and what is left at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from holotron.agent.agent import Budget
from holotron.agent.chat import Message, Reply
from holotron.agent.policy_format import NANO
from holotron.episodes.record import PolicyInfo
from holotron.suites.bandit import BanditSuite
from holotron.suites.live_play import LivePlay
from holotron.suites.play import Play
from tests.agent.replies import SingleChat

# More than a pipe between processes holds: the rest waits in the process that gives tasks.
MANY = 2000


class Clicker(SingleChat):
    """Always clicks in the middle, or fails in a way that is no episode's."""

    name = "clicker"

    def __init__(self, broken: bool, silent: bool = False) -> None:
        self._broken, self._silent = broken, silent

    async def open_seeded(self, seed: int) -> Clicker:
        return self

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        if self._broken:
            raise TypeError("no such argument")
        if self._silent:
            await asyncio.sleep(3600)
        return Reply('{"action":"click","x":500,"y":500}')


def playing(folder: Path, broken: bool, silent: bool = False, workers: int = 2) -> LivePlay:
    suite = BanditSuite()
    policy_format = NANO.with_kinds(suite.kinds)
    how = Play(suite, folder, PolicyInfo(model="clicker"), policy_format, Budget(steps=1), suite.rule, seed=1)
    return LivePlay(how, Clicker(broken, silent), sessions=8, workers=workers)


def put_many(play: LivePlay) -> None:
    suite = BanditSuite()
    for seed in range(MANY):
        play.put(suite.task(suite.names()[seed % 3], seed))


def test_an_error_that_is_no_episodes_is_told_however_many_tasks_wait(tmp_path: Path) -> None:
    with playing(tmp_path, broken=True) as play:
        put_many(play)
        with pytest.raises(TypeError, match="no such argument"):
            play.take(60)
        began = monotonic()
    assert monotonic() - began < 10


def test_tasks_that_wait_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with playing(tmp_path, broken=False) as play:
        put_many(play)
        ended = play.take(60)
        began = monotonic()
    assert monotonic() - began < 10
    assert ended is not None
    assert ended.info is not None
    assert ended.info.counts


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_being_played_is_left_at_the_end(tmp_path: Path, workers: int) -> None:
    with playing(tmp_path, broken=False, silent=True, workers=workers) as play:
        put_many(play)
        assert play.take(1.0) is None
        began = monotonic()
    assert monotonic() - began < 10
    with playing(tmp_path, broken=False, workers=workers) as play:  # and is played again
        put_many(play)
        assert play.take(60) is not None
