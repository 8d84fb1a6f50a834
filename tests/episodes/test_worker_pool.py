"""Items shared out to worker processes that all ask one model; workers that die or fail are told of."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from holotron.agent.chat import Message, Reply
from holotron.episodes.errors import StoreFull
from holotron.episodes.worker_pool import Share, WorkerDied, share_out


class Echo:
    """Says what it hears, and who it is."""

    name = "echo"

    async def open(self) -> Echo:
        return self

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        return Reply(f"{new[0].text} {os.getpid()}")

    async def close(self) -> None: ...


async def ask(share: Share[int]) -> list[tuple[int, str, int]]:
    assert share.model is not None

    async def one(item: int) -> tuple[int, str, int]:
        assert share.model is not None
        chat = await share.model.open()
        reply = await chat.say([Message("user", str(item))])
        share.report(item)
        return item, reply.text, os.getpid()

    return await share.each(one, at_once=2)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_item_is_done_once_and_one_model_answers_all(workers: int) -> None:
    reported: list[int] = []
    parts = asyncio.run(
        share_out(ask, range(20), Echo(), workers=workers, on_report=lambda _, item: reported.append(item))
    )
    done = [answer for part in parts for answer in part]
    assert len(parts) == workers
    assert sorted(item for item, _, _ in done) == sorted(reported) == list(range(20))
    assert all(text == f"{item} {os.getpid()}" for item, text, _ in done)
    assert (os.getpid() in {pid for _, _, pid in done}) == (workers == 1)


def test_who_takes_stays_with_a_group_and_then_helps_where_most_is_left() -> None:
    share = Share(list("aaabbbbcc"), groups=[[0, 1, 2], [3, 4, 5, 6], [7, 8]])
    one, two = share.take(), share.take()
    assert [next(one) for _ in range(2)] == ["b", "b"]
    assert [next(two) for _ in range(4)] == ["a", "a", "a", "c"]
    assert next(one) == "b"
    assert [*two, *one] == ["c", "b"]


async def take_groups(share: Share[str]) -> list[str]:
    return list(share.take())


def test_workers_take_groups_of_items() -> None:
    items = [f"{kind}{number}" for number in range(3) for kind in "abc"]
    parts = asyncio.run(share_out(take_groups, items, None, workers=2, group=lambda item: item[0]))
    assert sorted(item for part in parts for item in part) == sorted(items)
    assert all(len({name[0] for name in part[:3]}) == 1 for part in parts if part)


async def die_once(share: Share[Path]) -> int:
    done = 0
    for item in share.take():
        if item.name == "2":
            os.kill(os.getpid(), signal.SIGKILL)
        item.touch()
        done += 1
    return done


def test_a_worker_that_is_killed_is_told_of_after_the_others_are_done(tmp_path: Path) -> None:
    items = [tmp_path / str(number) for number in range(30)]
    with pytest.raises(WorkerDied, match=f"1 of 2 worker processes died, one with exit code {-signal.SIGKILL}"):
        asyncio.run(share_out(die_once, items, None, workers=2))
    assert [item.name for item in items if not item.exists()] == ["2"]


async def fail(share: Share[int]) -> None:
    if next(share.take()) == 0:
        raise StoreFull("make room")
    await asyncio.sleep(60)


def test_an_error_ends_all_workers_and_is_raised_here() -> None:
    with pytest.raises(StoreFull, match="make room"):
        asyncio.run(asyncio.wait_for(share_out(fail, range(9), None, workers=3), 30))


async def wait(share: Share[Path]) -> None:
    path = next(share.take())
    path.write_text(str(os.getpid()))
    try:
        await asyncio.sleep(60)
    finally:
        path.unlink()


def test_cancelling_lets_workers_clean_up(tmp_path: Path) -> None:
    items = [tmp_path / "one", tmp_path / "two"]

    async def main() -> list[int]:
        running = asyncio.create_task(share_out(wait, items, None, workers=2))
        while not all(item.exists() and item.read_text() for item in items):
            assert not running.done()
            await asyncio.sleep(0.02)
        pids = [int(item.read_text()) for item in items]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return pids

    pids = asyncio.run(main())
    assert not any(item.exists() for item in items)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not [thread for thread in threading.enumerate() if thread.name == "model-host"]
