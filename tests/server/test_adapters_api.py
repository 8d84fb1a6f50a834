"""Adapters over HTTP: a name for each, answers and sessions of their own."""

from __future__ import annotations

import os
import signal
import time

import pytest

from holotron.engine.options import EngineOptions
from holotron.engine.weights import bit_checksum, held_weights
from holotron.model.loading import load
from holotron.server.settings import ServerSettings
from tests.model.adapter_files import write_adapter

from .hostile import CHAT
from .live import serving

ASK = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def folders(checkpoint, tmp_path_factory):
    """Adapters by name: two that are served from the beginning, and others."""
    made = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("shop", "mail", "newer", "other")):
        write_adapter(load(checkpoint, "cpu"), made / name, seed)
    return {folder.name: str(folder) for folder in made.iterdir()}


@pytest.fixture(scope="module")
def http(checkpoint, folders):
    given = tuple((name, folders[name]) for name in ("shop", "mail"))
    serve = serving(checkpoint, engine={"adapters": given}, admin_key="operator")
    with serve as server, server.client("operator") as client:
        yield client


def answer(http, path=CHAT, **more):
    reply = http.post(path, json=ASK | more)
    assert reply.status_code == 200, reply.text
    return reply.json()


def text(reply) -> str:
    return reply["choices"][0]["message"]["content"]


def test_adapters_are_models(http):
    cards = http.get("/v1/models").json()["data"]
    base = cards[0]["id"]
    assert [(card["id"], card["parent"]) for card in cards] == [(base, None), ("shop", base), ("mail", base)]
    assert http.get("/v1/models/mail").json()["id"] == "mail"


def test_a_request_names_its_adapter(http):
    replies = {name: answer(http, model=name) for name in (None, "shop", "mail")}
    assert len({text(reply) for reply in replies.values()}) == 3
    assert [reply["model"] for name, reply in replies.items() if name] == ["shop", "mail"]
    for name, reply in replies.items():
        # What was computed for one is of no use to another.
        assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, name
        assert text(answer(http, model=name)) == text(reply)
        more = [*ASK["messages"], {"role": "assistant", "content": text(reply)}, *ASK["messages"]]
        again = answer(http, model=name, messages=more)
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_chain_of_responses_may_change_its_adapter(http):
    def respond(given, **more):
        body = {"input": given, "max_output_tokens": 6, "temperature": 0, "ignore_eos": True}
        return answer(http, "/v1/responses", **body, **more)

    hello, so = ({"role": "user", "content": text} for text in ("hello", "so?"))
    first = respond([hello], model="shop", instructions="Count.")
    history = [hello, *first["output"], so]
    for more, model in (({"model": "mail", "instructions": "Count."}, "mail"), ({"instructions": "Sing."}, "shop")):
        other = respond([so], previous_response_id=first["id"], **more)
        assert other["session_id"] != first["session_id"]
        assert other["model"] == model
        whole = respond(history, store=False, model=model, instructions=more["instructions"])
        assert other["output"][0]["content"] == whole["output"][0]["content"]
    for more in ({}, {"model": "shop"}):  # in its session, and in a branch of it
        again = respond([so], previous_response_id=first["id"], instructions="Count.", **more)
        assert again["model"] == "shop"
        assert again["usage"]["input_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1


def test_prompts_are_scored_by_the_adapter(http):
    """Scoring begins a session of its own, which must be the adapter's, too."""
    ask = {"prompt": "hello there", "max_tokens": 1, "echo": True, "logprobs": 0, "temperature": 0}
    scores = []
    for name in (None, "shop", "mail"):
        reply = http.post("/v1/completions", json=ask | {"model": name})
        assert reply.status_code == 200, reply.text
        scores.append(tuple(reply.json()["choices"][0]["logprobs"]["token_logprobs"][1:-1]))
    assert len(set(scores)) == 3


def test_an_unknown_adapter_is_not_found(http):
    reply = http.post(CHAT, json=ASK | {"model": "chess"})
    assert reply.status_code == 404
    assert "'shop', 'mail'" in reply.json()["error"]["message"]
    assert http.post("/v1/sessions", json={"model": "chess"}).status_code == 404


def test_a_session_stays_with_its_adapter(http):
    opened = http.post("/v1/sessions", json={"model": "shop"}).json()
    assert opened["adapter"] == "shop"
    path = f"/v1/sessions/{opened['id']}/turns"
    first = answer(http, path)
    assert (first["model"], text(first)) == ("shop", text(answer(http, model="shop")))
    assert answer(http, path, model="shop")["model"] == "shop"
    for other in ("mail", http.get("/v1/models").json()["data"][0]["id"]):
        refused = http.post(path, json=ASK | {"model": other})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
    (fork,) = http.post(f"/v1/sessions/{opened['id']}/fork").json()["data"]
    assert fork["adapter"] == "shop"
    assert answer(http, f"/v1/sessions/{fork['id']}/turns")["model"] == "shop"


def put(http, name, path):
    return http.put(f"/admin/adapters/{name}", json={"path": path})


def test_adapters_come_and_go_without_a_restart(http, folders, tmp_path):
    """What sessions were opened with they keep; what comes later has what is served then."""
    first, older = text(answer(http, model=None)), text(answer(http, model="shop"))
    session = http.post("/v1/sessions", json={"model": "shop"}).json()["id"]
    turns = f"/v1/sessions/{session}/turns"
    (early,) = http.post(f"/v1/sessions/{session}/fork").json()["data"]
    assert put(http, "shop", folders["newer"]).status_code == 200
    assert put(http, "third", folders["other"]).status_code == 200
    newer, third = (text(answer(http, model=name)) for name in ("shop", "third"))
    assert len({first, older, newer, third}) == 4
    assert text(answer(http, turns, model="shop")) == older
    assert text(answer(http, f"/v1/sessions/{early['id']}/turns")) == older
    assert text(answer(http, model=None)) == first
    assert [card["id"] for card in http.get("/v1/models").json()["data"]][1:] == ["shop", "mail", "third"]
    opened = http.post("/v1/sessions", json={"model": "third"}).json()["id"]
    refused = http.delete("/admin/adapters/third")
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        409,
        "1 sessions have the adapter 'third'; close them first",
    )
    http.delete(f"/v1/sessions/{opened}")
    assert http.delete("/admin/adapters/third").status_code == 200
    assert http.delete("/admin/adapters/third").status_code == 404
    assert http.post(CHAT, json=ASK | {"model": "third"}).status_code == 404
    # What cannot be loaded leaves all as it was.
    for name, path, why in (
        ("shop", tmp_path, "must hold adapter_config"),
        ("tiny", folders["mail"], "from the model"),
    ):
        refused = put(http, name, str(path))
        assert (refused.status_code, why in refused.json()["error"]["message"]) == (400, True)
    assert text(answer(http, model="shop")) == newer
    assert http.put("/admin/adapters/x", json={"path": "y"}, headers={"Authorization": "Bearer no"}).status_code == 401
    assert put(http, "shop", folders["shop"]).status_code == 200


def test_an_adapter_cannot_have_the_models_name():
    with pytest.raises(ValueError, match="an adapter cannot be called 'tiny'"):
        ServerSettings(engine=EngineOptions(model="tiny", adapters=(("tiny", "folder"),)))


def test_a_trainer_gives_an_adapter_other_values(checkpoint, folders):
    """Its version is told with each answer, sessions go on with it, and an engine that is started again has it."""

    def told(name):
        fresh = load(checkpoint, "cpu", adapters={"policy": folders[name]})
        return [bit_checksum(held_weights(fresh, adapter).items()) for adapter in ("policy", None)]

    with serving(checkpoint, admin_key="operator") as server, server.client("operator") as http:

        def give(name, version):
            body = {"path": folders[name], "version": version}
            assert http.put("/admin/adapters/policy", json=body).status_code == 200
            held = [http.get("/admin/checksum", params=at).json() for at in ({"adapter": "policy"}, {})]
            assert [each["checksum"] for each in held] == told(name)

        give("shop", "run/1")
        opened = http.post("/v1/sessions", json={"model": "policy", "on_update": "recompute"}).json()["id"]
        first = answer(http, f"/v1/sessions/{opened}/turns")
        assert first["weight_version"] == "run/1"
        give("newer", "run/2")
        newer = answer(http, model="policy")
        assert newer["weight_version"] == answer(http, f"/v1/sessions/{opened}/turns")["weight_version"] == "run/2"
        assert text(newer) != text(first)
        for path, version in ((None, "run/2"), (str(checkpoint), "base/3")):
            if path:
                assert http.post("/admin/update_weights", json={"path": path, "version": version}).status_code == 200
            pid = http.get("/admin/status").json()["engine_pid"]
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + 60
            while http.get("/admin/status").json()["engine_pid"] == pid or http.get("/health").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            again = answer(http, model="policy")
            assert (text(again), again["weight_version"]) == (text(newer), version)
            held = http.get("/admin/checksum", params={"adapter": "policy"}).json()["checksum"]
            assert held == told("newer")[0]
        refused = http.get("/admin/checksum", params={"adapter": "none"})
        assert (refused.status_code, "no adapter 'none'" in refused.text) == (404, True)
