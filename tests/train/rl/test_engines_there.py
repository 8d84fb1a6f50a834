"""Runs of online RL against real servers in other processes, which are killed, started again and lied to."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import httpx
import pytest
import torch

from holotron.agent import engine_pool
from holotron.engine.weights import bit_checksum, held_weights
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.initialize import random_model
from holotron.model.loading import load
from holotron.model.text.byte_tokenizer import byte_library
from holotron.model.text.chat_template import DEFAULT_TEMPLATE
from holotron.train.learner import Learner
from holotron.train.meter import TrainingError
from holotron.train.recipe import RecipeError
from holotron.train.rl import broadcast, engines_there
from holotron.train.rl.broadcast import WeightSender
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.engines_there import EnginesThere
from holotron.train.rl.trainer import GrpoTrainer
from holotron.train.rl.weight_sync import POLICY

from .runs import SAME, killed_run, lines, train
from .samples import TINY, write_run, write_tiny
from .servers import PATIENCE, PLAIN, Server
from .there import against, check_same, checksums_of, drawn, run_with


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    checkpoint = tmp_path_factory.mktemp("served")
    write_tiny(checkpoint)
    with ExitStack() as stack:
        yield [stack.enter_context(Server(checkpoint)) for _ in range(2)]


def kill_at_work(server: Server) -> None:
    """As soon as it has a session, and start it again."""
    deadline = time.monotonic() + PATIENCE
    while not server.ask("GET", "/v1/sessions")["data"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.kill()
    server.start()


def test_a_run_against_servers_of_which_one_is_killed_is_the_run_of_an_engine_here(
    servers: list[Server], tmp_path: Path
) -> None:
    for server in servers:
        server.start()
    path = write_run(tmp_path, steps=6)
    expected = train(path, tmp_path / "here")
    first, _ = servers
    killers: list[threading.Thread] = []

    def after(trainer: GrpoTrainer, step: int) -> None:
        held = checksums_of(trainer.learner)
        assert {"decoder.layers.0.mixer.D", "decoder.layers.0.mixer.conv1d.weight"} < held.keys()
        present = [server for server in servers if server is not first or step < 4]
        assert all(server.checksums() == held for server in present)
        if step == 1:  # behind the trainer's back: it must be noticed by what it says
            first.kill()
            first.ready()
            assert first.checksums() != held
            assert first.ask("GET", "/v1/sessions")["data"] == []
        if step == 3:
            killers.append(threading.Thread(target=kill_at_work, args=(first,)))
            killers[-1].start()

    told = run_with(against(path, *servers), tmp_path / "there", after)
    killers[0].join()
    check_same(told, expected)
    assert sum(progress.lost for progress in told) == 0  # they were played again
    assert drawn(tmp_path / "there") == drawn(tmp_path / "here")
    assert max(progress.difference or 0.0 for progress in told) < 1e-6
    assert all(progress.scored_difference is not None for progress in told)
    assert len(list((tmp_path / "there" / engines_there.FOLDER).iterdir())) == 1


def kill_engine(server: Server) -> None:
    """The engine alone: its server starts another, which has lost the weights."""
    os.kill(server.ask("GET", "/admin/status")["engine_pid"], signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while httpx.get(f"{server.url}/admin/checksum", **PLAIN).status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_over_broadcast_it_is_the_same_run_though_servers_are_killed_and_hang(
    servers: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for server in servers:
        server.start()
    monkeypatch.setattr(broadcast, "QUICK", 4.0)
    monkeypatch.setattr(engine_pool, "ATTEMPTS", 1)
    path, write = write_run(tmp_path, steps=3), EnginesThere._write
    first, second = servers
    expected = train(path, tmp_path / "here")

    def hanging(engines: EnginesThere, learner: Learner) -> str:
        if engines._version.endswith("/2"):
            second.signal(signal.SIGSTOP)
        return write(engines, learner)

    def after(trainer: GrpoTrainer, step: int) -> None:
        held = checksums_of(trainer.learner)
        assert {"decoder.layers.0.mixer.D", "decoder.layers.0.mixer.conv1d.weight"} < held.keys()
        assert first.checksums() == held
        if step == 1:  # behind the trainer's back
            first.kill()
            first.ready()
            assert first.checksums() != held
        if step == 2:
            second.signal(signal.SIGCONT)
            kill_engine(first)
            assert first.checksums() != held
        else:
            assert second.checksums() == held

    monkeypatch.setattr(EnginesThere, "_write", hanging)
    told = run_with(against(path, first, second, more='weights = "broadcast"'), tmp_path / "there", after)
    check_same(told, expected)
    assert sum(progress.lost for progress in told) == 0
    assert drawn(tmp_path / "there") == drawn(tmp_path / "here")
    assert max(progress.difference or 0.0 for progress in told) < 1e-6
    assert not (tmp_path / "there" / engines_there.FOLDER).exists()


def test_with_lora_only_the_adapter_goes_there(tmp_path: Path) -> None:
    """With a tokenizer of bytes, in which a grammar forces most of an answer."""
    path = write_run(tmp_path, steps=3)
    text = path.read_text().replace("longest = 128", "longest = 768").replace("tokens = 768", "tokens = 1536")
    path.write_text(text.replace("tokens_per_session = 256", "tokens_per_session = 1024") + "[lora]\nrank = 4\n")
    byte_library(TINY).save(str(tmp_path / "start" / "tokenizer.json"))
    (tmp_path / "start" / "chat_template.jinja").write_text(DEFAULT_TEMPLATE.read_text())
    save_checkpoint(random_model(TINY, seed=2), tmp_path / "other")
    with Server(tmp_path / "start") as server:
        server.start()
        expected, there = train(path, tmp_path / "here"), against(path, server)
        base = server.checksums()
        server.ask("POST", "/admin/update_weights", {"path": str(tmp_path / "other")})
        with pytest.raises(TrainingError, match=f"{server.url} has another model"):
            train(there, tmp_path / "there")
        server.ask("POST", "/admin/update_weights", {"path": str(tmp_path / "start")})

        def forks() -> int:
            return int(server.ask("GET", "/admin/status")["engine"]["forks"])

        def after(trainer: GrpoTrainer, step: int) -> None:
            assert server.checksums() == base

        before, deadline = forks(), time.monotonic() + PATIENCE
        check_same(run_with(there, tmp_path / "there", after), expected)
        told = server.ask("GET", f"/admin/checksum?adapter={POLICY}")["checksum"]
        while forks() == before:  # the engine tells it now and then
            assert time.monotonic() < deadline
    fresh = load(tmp_path / "start", "cpu", torch.float32, adapters={"again": tmp_path / "there" / "adapter"})
    assert told == bit_checksum(held_weights(fresh, "again").items())
    found = drawn(tmp_path / "there")
    assert found == drawn(tmp_path / "here")
    forced = [each for outputs in found.values() for _, _, of_output, _, _ in outputs for each in of_output]
    assert sum(forced) > len(forced) / 2


def test_a_killed_trainer_goes_on_with_its_servers(servers: list[Server], tmp_path: Path) -> None:
    servers[1].start()
    path, out = write_run(tmp_path, steps=4), tmp_path / "there"
    expected, there = train(path, tmp_path / "here"), against(path, servers[1])
    assert len(train(path, out, seconds=1e-3)) == 1  # with an engine of its own: where engines are may change
    killed_run(there, out, [lambda: len(lines(out)) >= 2])
    assert len(lines(out)) < 4
    assert train(there, out)[0].step > 1
    for one, other in zip(lines(out), expected, strict=True):
        for key in SAME:
            assert one[key] == getattr(other, key), (one["step"], key)


@pytest.mark.parametrize("way", ["files", "broadcast"])
def test_weights_that_change_on_their_way_stop_the_run(
    servers: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    path, server = against(write_run(tmp_path, steps=3), servers[1], more=f'weights = "{way}"'), servers[1]
    save, run, sent = engines_there.save_file, WeightSender.run, count()

    def altered_broadcast(sender: WeightSender) -> None:
        if next(sent) == 2:
            sender._tensors = [sender._tensors[0].nextafter(torch.ones(())), *sender._tensors[1:]]
        run(sender)

    def altered(weights: dict[str, torch.Tensor], place: Path) -> None:
        if place.stem.endswith("-2"):
            weights = weights | {
                "decoder.layers.0.mixer.D": weights["decoder.layers.0.mixer.D"].nextafter(torch.ones(()))
            }
        save(weights, place)

    monkeypatch.setattr(engines_there, "save_file", altered)
    monkeypatch.setattr(WeightSender, "run", altered_broadcast)
    with pytest.raises(TrainingError, match=f"{server.url} holds other weights .* than .*/2 "):
        train(path, tmp_path / "out")
    assert len(lines(tmp_path / "out")) == 1


def test_attempts_go_on_with_servers_while_it_learns(servers: list[Server], tmp_path: Path) -> None:
    more = 'on_update = "recompute"'
    path = against(write_run(tmp_path, steps=4, staleness=1), servers[1], more=more)
    told = train(path, tmp_path / "run")
    assert any(progress.staleness for progress in told)
    assert max(progress.difference or 0.0 for progress in told) < 1e-5
    versions = {each[3] for outputs in drawn(tmp_path / "run").values() for each in outputs}
    assert versions <= set(range(5))
    assert len(versions) > 1


def test_where_no_server_answers_the_run_ends_and_says_so(
    servers: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_pool, "ATTEMPTS", 1)
    path = against(write_run(tmp_path, steps=3), servers[1], more="engine_seconds = 1.0")
    with pytest.raises(TrainingError, match=f"no engine answers any more; the same command goes on: {servers[1].url}"):
        run_with(path, tmp_path / "out", lambda *_: servers[1].kill())
    with pytest.raises(TrainingError, match=f"no engine answers; `holotron serve` starts one: {servers[1].url}"):
        train(path, tmp_path / "out")
    servers[1].ready()
    assert [progress.step for progress in train(path, tmp_path / "out")] == [2, 3]


def test_a_server_that_hangs_holds_up_nobody(
    servers: list[Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines_there, "QUICK", 0.3)
    with socket.socket() as hanging:  # it takes connections, and never answers
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        path = against(write_run(tmp_path, steps=2), servers[1])
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        path.write_text(path.read_text().replace("engines = [", f'engines = ["{url}", '))
        assert [progress.lost for progress in train(path, tmp_path / "out")] == [0, 0]


@pytest.mark.parametrize("engines", ['"10.0.3.7:8000"', '"http://a:1", "http://a:1"'])
def test_engines_are_servers_with_an_address_each(tmp_path: Path, engines: str) -> None:
    path = write_run(tmp_path, steps=1, rollout=f"engines = [{engines}]")
    with pytest.raises(RecipeError, match="each must be a server of its own, as http://HOST:PORT"):
        read_grpo_recipe(path)
