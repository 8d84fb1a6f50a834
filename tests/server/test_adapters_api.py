"""Adapters over HTTP: a name for each, answers and sessions of their own."""

from __future__ import annotations

import pytest

from holotron.engine.options import EngineOptions
from holotron.model.loading import load
from holotron.server.settings import ServerSettings
from tests.model.adapter_files import write_adapter

from .hostile import CHAT
from .live import serving

ASK = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def http(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    model = load(checkpoint, "cpu")
    given = []
    for seed, name in enumerate(("shop", "mail")):
        write_adapter(model, folder / name, seed)
        given.append((name, str(folder / name)))
    with serving(checkpoint, engine={"adapters": tuple(given)}) as server, server.client() as client:
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


def test_an_adapter_cannot_have_the_models_name():
    with pytest.raises(ValueError, match="an adapter cannot be called 'tiny'"):
        ServerSettings(engine=EngineOptions(model="tiny", adapters=(("tiny", "folder"),)))
