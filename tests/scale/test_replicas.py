"""One server in front of several engines: sessions stay, move, and outlive the engine that had them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holotron.bench.screens import draw_screen, png
from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.weight_receiver import WeightReceiver
from holotron.model.loading import load
from holotron.scale.router import ReplicaRouter
from holotron.server import messages as m
from holotron.server.engine_client import EngineRefused
from tests.model.adapter_files import write_adapter
from tests.scale.in_threads import in_threads
from tests.server.live import Live, serving, write_checkpoint

PATIENCE = 60
ADMIN = {"Authorization": "Bearer admin"}
GREEDY = {"temperature": 0, "return_token_ids": True, "ignore_eos": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def live(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holotron.server.engine_client.FIRST_PAUSE", 0.02)  # they are killed again and again
        with serving(folder, replicas=in_threads(2), admin_key="admin") as server:
            wait(lambda: len(router(server).directory.up()) == 2)
            yield server


@pytest.fixture
def http(live):
    with live.client() as client:
        yield client


def router(live: Live) -> ReplicaRouter:
    assert isinstance(live.state.client, ReplicaRouter)
    return live.state.client


def wait(true) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def on_loop(live: Live, work):
    return asyncio.run_coroutine_threadsafe(work, live.loop).result(PATIENCE)


def home(live: Live, session: str) -> str | None:
    replica = router(live).directory.places[session].replica
    return None if replica is None else replica.name


def kill(live: Live, name: str) -> None:
    """End a replica as kill -9 does, and wait until the server has noticed."""
    client = router(live).directory.replicas[name].client
    before = client.restarts
    client._process.kill()
    wait(lambda: client.restarts > before)


def opened(http, **options) -> str:
    return http.post("/v1/sessions", json=options).raise_for_status().json()["id"]


def turn(http, session: str, text: str, **options) -> list[int]:
    said = [{"type": "text", "text": text}]
    if picture := options.pop("picture", None):
        said.append(
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(picture).decode()}"}}
        )
    body = {"messages": [{"role": "user", "content": said}], "max_tokens": 12, **GREEDY, **options}
    answer = http.post(f"/v1/sessions/{session}/turns", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["token_ids"]


def move(live: Live, session: str) -> None:
    place = router(live).directory.places[session]
    assert on_loop(live, router(live).move(place))


SAMPLED = {"temperature": 1.0, "seed": 5}
SCREEN = png(draw_screen((64, 48), 1, 1.0))
TURNS = ({"text": "Hello"}, {"text": "Look", "picture": SCREEN}, {"text": "Again", **SAMPLED}, {"text": "Bye"})


def test_new_sessions_go_where_there_is_room_and_stay(live, http):
    with ThreadPoolExecutor(6) as beside:  # at once: each must know of the others that are on their way
        sessions = list(beside.map(lambda _: opened(http), range(6)))
    homes = [home(live, session) for session in sessions]
    assert sorted(homes) == ["0"] * 3 + ["1"] * 3
    for session in sessions:
        turn(http, session, "Hello", max_tokens=2)
    assert [home(live, session) for session in sessions] == homes
    for session in sessions:
        http.delete(f"/v1/sessions/{session}").raise_for_status()
    assert not router(live).directory.places


def test_a_session_that_moves_says_what_one_that_stays_says(live, http):
    stays, moves, dies = opened(http), opened(http), opened(http)
    counted = dict(router(live).counts)
    for number, given in enumerate(TURNS):
        expected = turn(http, stays, **given)
        assert turn(http, moves, **given) == expected
        assert turn(http, dies, **given) == expected
        if number == 1:
            for session in (stays, moves, dies):
                http.post(f"/v1/sessions/{session}/rollback", json={"turn": -1}).raise_for_status()
        move(live, moves)
    counts = router(live).counts
    assert counts["moved"] - counted["moved"] == len(TURNS)
    told = [http.get(f"/v1/sessions/{session}").json() for session in (stays, moves)]
    assert told[0]["turns"] == told[1]["turns"]
    for number in range(2):
        kill(live, home(live, dies))
        assert turn(http, dies, f"After {number}") == turn(http, stays, f"After {number}")
    assert counts["rebuilt"] - counted["rebuilt"] >= 2
    assert counts["lost"] == 0
    (fork,) = http.post(f"/v1/sessions/{stays}/fork", json={"n": 1}).json()["data"]
    kill(live, home(live, fork["id"]))
    assert turn(http, fork["id"], "Fork") == turn(http, stays, "Fork")
    for session in (stays, moves, dies, fork["id"]):
        http.delete(f"/v1/sessions/{session}").raise_for_status()


def test_the_log_tells_what_became_of_a_session(live, http, caplog):
    def told(event: str) -> list[dict[str, object]]:
        records = [record for record in caplog.records if record.getMessage() == event]
        return [record.fields for record in records if record.fields.get("session") == session]

    wait(lambda: len(router(live).directory.up()) == 2)
    with caplog.at_level("INFO"):
        session = opened(http)
        turn(http, session, "Hello", max_tokens=2)
        came = home(live, session)
        move(live, session)
        kill(live, went := home(live, session))
        turn(http, session, "Again", max_tokens=2)
        wait(lambda: len(told("request")) == 2)
    assert [(each["route"], each["status"]) for each in told("request")] == [
        ("/v1/sessions/{session_id}/turns", 200)
    ] * 2
    assert told("session moved") == [{"session": session, "source": came, "replica": went}]
    assert told("session rebuilt") == [{"session": session, "replica": home(live, session)}]
    http.delete(f"/v1/sessions/{session}").raise_for_status()


def test_a_turn_outlives_its_replica(live, http):
    """Killed in the middle of a stream: the client gets every token once, and the same ones."""
    session, other = opened(http), opened(http)
    expected = turn(http, other, "Hello", max_tokens=200)
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 200, "stream": True, **GREEDY}
    events, killed = [], False
    with http.stream("POST", f"/v1/sessions/{session}/turns", json=body) as stream:
        for line in stream.iter_lines():
            events.append(line)
            if len(events) == 10:
                kill(live, home(live, session))
                killed = True
    assert killed
    assert "data: [DONE]" in events
    told = [json.loads(line[6:]) for line in events if line.startswith("data: {")]
    tokens = [id_ for event in told for choice in event["choices"] for id_ in choice.get("token_ids") or []]
    assert tokens == expected
    assert turn(http, session, "More") == turn(http, other, "More")
    for each in (session, other):
        http.delete(f"/v1/sessions/{each}")


def test_replicas_come_and_go(live, http):
    sessions = [opened(http) for _ in range(4)]
    first = [turn(http, session, "Hello") for session in sessions]
    assert first[1:] == first[:-1]
    with ThreadPoolExecutor(1) as beside, live.client() as admin:
        smaller = beside.submit(lambda: admin.post("/admin/replicas", json={"count": 1}, headers=ADMIN))
        during = [turn(http, session, "And") for session in sessions]
        told = smaller.result().raise_for_status().json()
        assert len(told["replicas"]) == 1
        assert told["replicas"][0]["sessions"] == 4
        assert during[1:] == during[:-1]
        admin.post("/admin/replicas", json={"count": 2}, headers=ADMIN).raise_for_status()
        wait(lambda: len(router(live).directory.up()) == 2)
        admin.post("/admin/replicas/rebalance", headers=ADMIN).raise_for_status()
        wait(lambda: {len(replica.sessions) for replica in router(live).directory.replicas.values()} <= {1, 2, 3})
        names = set(router(live).directory.replicas)
        for name in sorted(names):  # one after another: an update of the code
            told = admin.post(f"/admin/replicas/{name}/replace", headers=ADMIN).raise_for_status().json()
        assert names.isdisjoint(replica["name"] for replica in told["replicas"])
        assert sum(replica["sessions"] for replica in told["replicas"]) == 4
        assert admin.post("/admin/replicas/99/replace", headers=ADMIN).status_code == 404
        assert admin.get("/admin/replicas").status_code == 401
    wait(lambda: len(router(live).directory.up()) == 2)
    last = [turn(http, session, "Bye") for session in sessions]
    assert last[1:] == last[:-1]
    assert router(live).counts["lost"] == 0
    for session in sessions:
        http.delete(f"/v1/sessions/{session}").raise_for_status()


def test_full_replicas_say_so_and_learn_what_they_can_keep(folder):
    tiny = {"memory_gib": 0.0005, "host_gib": 0.0, "tokens_per_session": 64}
    with serving(folder, tiny, replicas=in_threads(2)) as live, live.client() as http, ThreadPoolExecutor(8) as beside:
        replicas = router(live).directory.replicas.values()
        wait(lambda: all(replica.client.stats.values for replica in replicas))
        slots = sum(replica.client.stats.values["slots"] for replica in replicas)
        answers = list(beside.map(lambda _: http.post("/v1/sessions"), range(int(slots) + 8)))
        sessions = [answer.json()["id"] for answer in answers if answer.status_code == 200]
        full = [answer for answer in answers if answer.status_code != 200]
        assert slots <= len(sessions) < len(answers)  # a second may have passed
        assert {(a.status_code, a.headers["Retry-After"], a.json()["error"]["code"]) for a in full} == {
            (429, "1", "no_room")
        }
        assert http.post(f"/v1/sessions/{sessions[0]}/fork", json={"n": 64}).status_code == 429
        assert http.get("/health?deep=true").status_code == 200
        wait(lambda: http.post("/v1/sessions").status_code == 200)  # nothing was computed again: there is more
        caps = [replica.cap.of(replica.client.stats, len(replica.sessions)) for replica in replicas]
        shrunk: set[str] = set()

        def thrash() -> bool:
            for session in sessions:  # more than they can keep, in turn
                turn(http, session, "Hello", max_tokens=1)
                for replica, cap in zip(replicas, caps, strict=True):
                    shrunk.update([replica.name] * (replica.cap.of(replica.client.stats, len(replica.sessions)) < cap))
            return len(shrunk) == 2

        wait(thrash)


def test_requests_without_a_session_find_what_was_computed(live, http):
    long = [{"role": "user", "content": "Say something about " + "one thing and another, " * 8}]
    cached = []
    for number in range(3):
        answer = http.post("/v1/chat/completions", json={"messages": long, "max_tokens": 4, **GREEDY}).json()
        cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        text = answer["choices"][0]["message"]["content"]
        long = [*long, {"role": "assistant", "content": text}, {"role": "user", "content": f"And {number}?"}]
    assert cached[0] == 0
    assert min(cached[1:]) > 64
    named = {}
    for key in ("a", "b", "c", "d"):
        for header in ("X-Session-ID", "X-SMG-Routing-Key", "X-Dynamo-Session-ID", "x-session-token"):
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
            http.post("/v1/chat/completions", json=body, headers={header: key}).raise_for_status()
            known = router(live).directory._by_name
            named.setdefault(key, set()).update(known[name] for name in known if name.endswith(f" {key}"))
    assert [len(replicas) for replicas in named.values()] == [1] * 4


def test_weights_reach_all_replicas_or_none(live, http, folder, tmp_path):
    other = write_checkpoint(tmp_path / "other", seed=1)
    sessions = [opened(http, on_update="recompute") for _ in range(2)]
    before = [turn(http, session, "Hello") for session in sessions]
    bad = tmp_path / "bad"
    bad.mkdir()
    refused = http.post("/admin/update_weights", json={"path": str(bad)}, headers=ADMIN)
    assert refused.status_code == 400
    told = http.post("/admin/update_weights", json={"path": str(other), "version": "v2"}, headers=ADMIN)
    assert told.raise_for_status().json()["weight_version"] == "v2"
    kill(live, home(live, sessions[0]))  # who comes back has them, too
    after = [turn(http, session, "And") for session in sessions]
    assert before[0] == before[1]
    assert after[0] == after[1]
    epochs = [replica.client.stats for replica in router(live).directory.replicas.values()]
    assert len(epochs) == 2
    told = http.post("/admin/update_weights", json={"path": str(folder), "version": "v3"}, headers=ADMIN)
    assert told.raise_for_status().json()["weight_version"] == "v3"
    answer = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})
    assert answer.json()["weight_version"] == "v3"
    assert http.post("/admin/pause", headers=ADMIN).raise_for_status()
    assert http.post("/admin/resume", headers=ADMIN).raise_for_status()


def test_weights_that_one_replica_does_not_take_are_taken_by_its_successor(live, http, folder, monkeypatch, tmp_path):
    commit, refusals = WeightReceiver.commit, []

    def refusing_once(receiver: WeightReceiver, epoch: int) -> bool:
        refusals.append(epoch)
        if len(refusals) == 1:
            raise EngineError("there is no memory for them")
        return commit(receiver, epoch)

    client, sessions = router(live), [opened(http, on_update="recompute") for _ in range(2)]
    before = client.restarts
    for session in sessions:
        turn(http, session, "Hello")
    monkeypatch.setattr(WeightReceiver, "commit", refusing_once)
    other = write_checkpoint(tmp_path / "other", seed=1)
    http.post("/admin/update_weights", json={"path": str(other)}, headers=ADMIN).raise_for_status()
    after = [turn(http, session, "And") for session in sessions]
    wait(lambda: client.restarts == before + 1 and len(client.directory.up()) == 2)
    assert after[0] == after[1]
    fresh = [opened(http) for _ in range(2)]
    if home(live, fresh[0]) == home(live, fresh[1]):
        move(live, fresh[1])
    assert {home(live, session) for session in fresh} == set(client.directory.replicas)
    said = [turn(http, session, "Hello") for session in fresh]
    assert said[0] == said[1]

    def refusing(receiver: WeightReceiver, epoch: int) -> bool:
        raise EngineError("there is no memory for them")

    monkeypatch.setattr(WeightReceiver, "commit", refusing)
    told = http.post("/admin/update_weights", json={"path": str(folder)}, headers=ADMIN)
    assert (told.status_code, client.restarts) == (400, before + 1)
    assert turn(http, fresh[0], "And") == turn(http, fresh[1], "And")
    monkeypatch.undo()
    http.post("/admin/update_weights", json={"path": str(folder)}, headers=ADMIN).raise_for_status()
    for session in (*sessions, *fresh):
        http.delete(f"/v1/sessions/{session}").raise_for_status()


def test_a_session_that_none_takes_does_not_keep_a_replica(live, http, folder, tmp_path):
    """Its adapter was replaced under its name: it stays while it can, and goes on with the present one."""
    model = load(folder, "cpu")
    for seed in (1, 2):
        write_adapter(model, tmp_path / str(seed), seed)
    place = {"path": str(tmp_path / "1")}
    http.put("/admin/adapters/shop", json=place, headers=ADMIN).raise_for_status()
    session = opened(http, model="shop")
    turn(http, session, "Hello")
    refused = http.delete("/admin/adapters/shop", headers=ADMIN)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_busy")
    http.put("/admin/adapters/shop", json={"path": str(tmp_path / "2")}, headers=ADMIN).raise_for_status()
    name = home(live, session)
    http.post(f"/admin/replicas/{name}/replace", headers=ADMIN).raise_for_status()
    assert turn(http, session, "And")
    assert home(live, session) != name
    http.delete(f"/v1/sessions/{session}").raise_for_status()
    http.delete("/admin/adapters/shop", headers=ADMIN).raise_for_status()
    wait(lambda: len(router(live).directory.up()) == 2)


def test_a_turn_that_is_ended_before_it_begins_says_so(live, http, monkeypatch):
    session, prepares = opened(http), threading.Event()

    async def for_ever(*_: object) -> None:
        prepares.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Engine, "prepare_image", for_ever)
    wanted = m.Generate((1, 2, 5, 7), SamplingParams(), ((2, SCREEN),), session)

    async def end_it(wanted: m.Generate, at_engine: bool) -> str:
        pending = router(live).generate(wanted)
        if at_engine:
            await asyncio.to_thread(prepares.wait)
        pending.abort()
        with pytest.raises(EngineRefused) as told:
            await pending.started()
        return told.value.kind

    assert on_loop(live, end_it(wanted, True)) == "aborted"
    monkeypatch.undo()
    for replica in router(live).directory.replicas.values():
        monkeypatch.setattr(replica, "draining", True)  # none that takes it
    assert on_loop(live, end_it(m.Generate((1, 2), SamplingParams()), False)) == "aborted"
    monkeypatch.undo()
    assert turn(http, session, "Hello")
    http.delete(f"/v1/sessions/{session}").raise_for_status()


def test_figures_are_told_by_replica(live, http):
    wait(lambda: all(replica.client.stats.values for replica in router(live).directory.replicas.values()))
    text = http.get("/metrics").text
    names = router(live).directory.replicas
    for name in names:
        assert f'holotron:free_pages{{model_name="tiny",replica="{name}"}}' in text
    for count in ("moved", "rebuilt", "lost"):
        assert f'holotron:sessions_{count}_total{{model_name="tiny"}}' in text
    assert http.get("/admin/status", headers=ADMIN).json()["engine"]["slots"] > 0
    assert http.get("/health?deep=true").status_code == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_request_of_the_page_is_answered(live):
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("curl ")]
    assert len(lines) >= 4
    for line in lines:
        for shown, here in (
            ("localhost:8000", live.url),
            ("replicas/0/", f"replicas/{next(iter(router(live).directory.replicas))}/"),
            ('"count": 6', '"count": 2'),  # two do
        ):
            line = line.replace(shown, here)
        words = ["bash", "-c", line.replace("curl ", "curl -sS --fail --noproxy '*' ", 1)]
        environment = os.environ | {"ADMIN_KEY": "admin"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True)
        assert json.loads(done.stdout)["ok"]
