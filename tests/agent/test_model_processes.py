"""Copies of a model in processes of their own: workers are shared out to them, and all of them end."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

import pytest

from holotron.agent.chat import ChatOptions, ModelUnavailable
from holotron.agent.model_processes import ModelProcesses
from holotron.agent.open_model import warmed_model
from holotron.episodes.worker_pool import share_out
from holotron.model.errors import ModelError
from tests.server.live import write_checkpoint

from .copies import answer, ask, named, process_of

OPTIONS = ChatOptions(max_tokens=8, keep_images=None, use_grammar=False)


def test_copies_of_a_checkpoint_say_the_same(tmp_path):
    folder = str(write_checkpoint(tmp_path / "tiny"))
    with ModelProcesses(2, folder, partial(warmed_model, folder, OPTIONS, "cpu", 2)) as copies:
        one, other = copies.call(answer)
    assert one == other
    assert one


def test_workers_are_shared_out_and_all_end(begun):
    with ModelProcesses(2, "named", named) as copies:
        held = begun()
        pids = [process.pid for process in held]
        found = asyncio.run(share_out(ask, ["one"], copies, workers=3))
        asked = [int(reply.text) for [reply] in found]
        assert sorted(map(asked.count, pids)) == [1, 2]
        with pytest.raises(ModelUnavailable, match="only workers"):
            asyncio.run(copies.open())
    assert [process.exitcode for process in held] == [0, 0]


def test_what_hinders_a_copy_is_raised_here(begun):
    with (
        pytest.raises(ModelError, match="nothing-here"),
        ModelProcesses(2, "named", partial(named, ModelError("nothing-here"))),
    ):
        pass
    assert not begun()


def test_all_copies_do_what_they_are_told_until_one_is_killed(begun):
    with ModelProcesses(2, "named", named) as copies:
        pids = [process.pid or 0 for process in begun()]
        assert sorted(copies.call(process_of, 1)) == sorted(pid + 1 for pid in pids)
        with pytest.raises(ValueError, match="fewer"):
            copies.call(process_of, -1)
        assert len(copies.call(process_of, 1)) == 2
        copies.check()
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(ModelUnavailable, match="has ended"):
            copies.call(process_of, 1)
        with pytest.raises(ModelUnavailable, match="has ended"):
            copies.check()
        with pytest.raises(ModelUnavailable):  # its workers hear it
            asyncio.run(share_out(ask, ["one"], copies, workers=2))
    assert not begun()
