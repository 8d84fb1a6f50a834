"""Online RL on hosts that are lost: the same run as with browsers of the trainer's machine. Without Ray."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from holotron.agent.chat import ChatModel, Message, ModelUnavailable
from holotron.episodes.store import EpisodeStore
from holotron.scale.browser_host import BrowserHost
from holotron.scale.host_fleet import Host
from holotron.scale.live_hosts import LiveHostPlay
from holotron.scale.shared_model import SharedModel, SharedModelHost
from holotron.suites.play import Play
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.trainer import EPISODES, GrpoTrainer
from tests.agent.replies import Recited
from tests.scale.test_host_fleet import FallibleHost
from tests.train.rl.runs import SAME, lines, train
from tests.train.rl.samples import write_run

HOST = "127.0.0.1"
DEATHS = (2, 9, 14)  # of its tasks, those at whose beginning the host is lost with all that it plays


@asynccontextmanager
async def open_lost(
    how: Play, model: ChatModel | None, *, hosts: int, sessions: int, browsers: int
) -> AsyncIterator[Sequence[Host]]:
    """A host in this process that asks over a socket, and is lost in the middle of what it plays."""
    assert model is not None
    assert hosts == 1
    with SharedModelHost(model, HOST) as shared:
        host = BrowserHost(how, pickle.loads(pickle.dumps(shared.shared())), sessions, browsers)
        yield [FallibleHost(host, DEATHS)]
        await host.close()


def test_a_host_that_is_lost_changes_nothing_of_a_run(tmp_path: Path) -> None:
    path, out = write_run(tmp_path, steps=2), tmp_path / "hosts"
    GrpoTrainer(read_grpo_recipe(path), out, "cpu", live=partial(LiveHostPlay, open_lost)).run()
    store = EpisodeStore(out / EPISODES)
    infos = store.list_episodes()
    keys = [store.key(info.task) for info in infos]
    assert len(set(keys)) == len(keys)
    assert store.check() == []
    told = lines(out)
    assert sum(line["lost"] for line in told) == 0
    ledger = json.loads((out / "ledger-2.json").read_text())
    assert ledger["totals"]["episodes"] == 4 * (ledger["begun"] - len(ledger["open"]))
    outputs = [step.output for info in infos for step in store.steps(info.id)]
    versions = {output.weight_version for output in outputs if output is not None}
    assert len(versions) > 1
    assert max(line["logprob_difference"] or 0.0 for line in told) < 1e-5
    here = train(path, tmp_path / "here")
    for one, other in zip(told, here, strict=True):
        for name in SAME:
            assert one[name] == getattr(other, name), (one["step"], name)


def test_a_model_is_shared_with_those_who_know_its_key() -> None:
    async def ask(model: SharedModel) -> str:
        try:
            chat = await model.open()
            return (await chat.say([Message("user", "Hello")])).text
        finally:
            await model.aclose()

    with SharedModelHost(Recited("at home"), HOST) as shared:
        known = shared.shared()
        stranger = SharedModel(known.host, known.port, b"?" * 32, known.name)
        with ThreadPoolExecutor(2) as both:
            answers = both.map(asyncio.run, (ask(shared.shared()), ask(shared.shared())))
            assert list(answers) == ["at home"] * 2
        with pytest.raises(ModelUnavailable, match="does not know the key"):
            asyncio.run(ask(stranger))
    with pytest.raises(ModelUnavailable, match="is not served"):
        asyncio.run(ask(known))


async def test_a_lost_connection_is_made_again() -> None:
    with SharedModelHost(Recited("first"), HOST) as shared:
        model = shared.shared()
        chat = await model.open()
    with pytest.raises(ModelUnavailable):
        await chat.say([Message("user", "Hello")])
    with SharedModelHost(Recited("second"), HOST) as shared:
        model.port, model.key = shared.shared().port, shared.shared().key
        assert (await (await model.open()).say([Message("user", "Hello")])).text == "second"
        await model.aclose()
