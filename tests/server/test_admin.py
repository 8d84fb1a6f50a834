"""What the operator does to a running server: pause, other weights, sleep."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save

from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.initialize import random_model

from .live import TINY, Live, serving, write_checkpoint

CHAT = "/v1/chat/completions"
LONG = {"temperature": 0, "ignore_eos": True, "return_token_ids": True, "max_tokens": 500}


@pytest.fixture(scope="module")
def server(checkpoint) -> Iterator[Live]:
    with serving(checkpoint, admin_key="operator") as live:
        yield live


@pytest.fixture
def admin(server) -> Iterator[httpx.Client]:
    with server.client("operator") as client:
        yield client


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("other"), seed=1)


def says(text: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **LONG, **more}


def ask(client: httpx.Client, **more: Any) -> dict[str, Any]:
    answer = client.post(CHAT, json=says(**({"max_tokens": 12} | more)))
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(answer: dict[str, Any]) -> list[int]:
    return answer["choices"][0]["token_ids"]


def ok(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text[:300]
    return answer.json()


class Stream:
    """A stream that a thread reads."""

    def __init__(self, server: Live, **more: Any) -> None:
        self.tokens: list[int] = []
        self.versions: list[str] = []
        self.reasons: list[str] = []
        self._body = says(stream=True, **more)
        self._server = server
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        while len(self.tokens) < 5:
            assert self.thread.is_alive()
            time.sleep(0.005)

    def _read(self) -> None:
        with self._server.client("operator") as client, client.stream("POST", CHAT, json=self._body) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: {"):
                    choice = json.loads(line[6:])["choices"][0]
                    self.tokens += choice["token_ids"]
                    self.versions += choice["weight_versions"]
                    self.reasons += [choice["finish_reason"]] if choice["finish_reason"] else []

    def finish(self) -> list[int]:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.tokens


def test_the_admin_key_is_wanted(http, server):
    assert http.get("/admin/status").status_code == 403
    assert "--admin-key" in http.post("/admin/pause").json()["error"]["message"]
    with server.client("somebody") as client:
        for method, path in (("GET", "/admin/status"), ("POST", "/admin/wake"), ("PUT", "/admin/weights")):
            assert client.request(method, path).status_code == 401


def test_a_kept_pause_changes_nothing_but_the_time(server, admin):
    whole = ids(ask(admin, max_tokens=500))
    stream = Stream(server)
    ok(admin.post("/admin/pause"))
    time.sleep(0.1)
    so_far = len(stream.tokens)
    time.sleep(0.3)
    assert len(stream.tokens) == so_far < 500
    ok(admin.post("/admin/pause", json={"mode": "wait"}))  # there is nothing to wait for in a pause
    ok(admin.post("/admin/resume"))
    assert stream.finish() == whole


def test_a_pause_may_wait_or_abort(server, admin):
    stream = Stream(server)
    ok(admin.post("/admin/pause", json={"mode": "wait"}))
    assert len(stream.finish()) == 500
    ok(admin.post("/admin/resume"))
    stream = Stream(server)
    ok(admin.post("/admin/pause", json={"mode": "abort"}))
    assert len(stream.finish()) < 500
    assert stream.reasons == ["abort"]
    ok(admin.post("/admin/resume"))
    assert ids(ask(admin))


def test_other_weights(server, admin, checkpoint, other):
    policies = ("keep", "recompute", "drop")
    sessions = {policy: ok(admin.post("/v1/sessions", json={"on_update": policy}))["id"] for policy in policies}
    first = {policy: ask(admin, session_id=id_) for policy, id_ in sessions.items()}
    before = ask(admin, text="Again")
    assert ok(admin.get("/admin/status"))["weight_version"] == before["weight_version"]
    told = ok(admin.post("/admin/update_weights", json={"path": str(other), "version": "step-7"}))
    assert told["weight_version"] == "step-7"
    after = ask(admin, text="Again")
    assert ids(after) != ids(before)
    assert after["weight_version"] == "step-7"
    assert after["choices"][0]["weight_versions"] == ["step-7"] * len(ids(after))
    assert after["choices"][0]["forced"] == [False] * len(ids(after))
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0  # by other weights
    kept, recomputed = (ask(admin, text="More", session_id=sessions[policy]) for policy in ("keep", "recompute"))
    tokens = [*first["recompute"]["prompt_token_ids"], *ids(first["recompute"]), *recomputed["prompt_token_ids"]]
    anew = ok(admin.post("/v1/completions", json={"prompt": tokens, **LONG, "max_tokens": 12}))
    assert ids(anew) == ids(recomputed)
    assert kept["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert recomputed["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    dropped = admin.post(CHAT, json=says(session_id=sessions["drop"]))
    assert dropped.status_code == 404
    assert dropped.json()["error"]["code"] == "session_not_found"
    ok(admin.post("/admin/update_weights", json={"path": str(checkpoint)}))
    assert ids(ask(admin, text="Again")) == ids(before)


def test_weights_that_change_in_the_middle_of_an_answer(server, admin, checkpoint, other):
    stream = Stream(server)
    ok(admin.post("/admin/update_weights", json={"path": str(other), "version": "mid"}))
    tokens = stream.finish()
    assert len(stream.versions) == len(tokens)
    assert stream.versions[0] != "mid"
    assert stream.versions[-1] == "mid"
    ok(admin.post("/admin/update_weights", json={"path": str(checkpoint)}))


def test_weights_from_another_process(admin, checkpoint):
    before = ask(admin, text="Sent")
    tensors = {name: value.detach().clone() for name, value in random_model(TINY, seed=3).named_parameters()}
    content = save(tensors)
    told = ok(admin.put("/admin/weights?version=sent", content=content))
    assert told["weight_version"] == "sent"
    sent = ask(admin, text="Sent")
    assert ids(sent) != ids(before)
    for wrong in (b"", b"hello", content[: len(content) // 2], save({"nothing": tensors.popitem()[1]})):
        refused = admin.put("/admin/weights", content=wrong)
        assert refused.status_code == 400, refused.text
        assert "holotron-weights-" not in refused.text
    assert ids(ask(admin, text="Sent")) == ids(sent)
    ok(admin.post("/admin/update_weights", json={"path": str(checkpoint)}))


def test_the_served_file_is_taken_as_it_is(admin, checkpoint, other):
    """By path and sent, in the checkpoint's own names; and a part of it, by either name."""
    before = ask(admin, text="File")
    (file,) = other.glob("*.safetensors")
    ok(admin.post("/admin/update_weights", json={"path": str(file)}))
    by_path = ask(admin, text="File")
    assert ids(by_path) != ids(before)
    (first,) = checkpoint.glob("*.safetensors")
    ok(admin.put("/admin/weights", content=first.read_bytes()))
    assert ids(ask(admin, text="File")) == ids(before)
    tensors, own = load_file(file), dict(random_model(TINY, seed=1).named_parameters())
    for name in ("language_model.lm_head.weight", "decoder.lm_head.weight"):
        assert name in tensors or name in own
        value = tensors[name] if name in tensors else own[name].detach()
        ok(admin.put("/admin/weights", content=save({name: value.clone()})))
        assert ids(ask(admin, text="File")) != ids(before)
        ok(admin.put("/admin/weights", content=first.read_bytes()))


@pytest.mark.parametrize("bits", [8, 12])
def test_packed_matrices_come_with_their_scales(admin, checkpoint, tmp_path, bits):
    save_checkpoint(random_model(TINY, seed=4), tmp_path, bits=bits)
    (file,) = tmp_path.glob("*.safetensors")
    packed = [name for name, value in load_file(file).items() if value.dtype == torch.int8]
    assert packed
    said = []
    for path in (checkpoint, tmp_path, checkpoint, file):
        ok(admin.post("/admin/update_weights", json={"path": str(path)}))
        said.append(ids(ask(admin, text="Bits")))
    assert said[0] == said[2] != said[1] == said[3]
    ok(admin.post("/admin/update_weights", json={"path": str(checkpoint)}))


@pytest.mark.parametrize("kind", [torch.int8, torch.int32, torch.bool])
def test_whole_numbers_are_no_weights(admin, kind):
    before = ask(admin, text="Whole")
    name = "language_model.backbone.norm_f.weight"
    refused = admin.put("/admin/weights", content=save({name: torch.ones(TINY.hidden_size, dtype=kind)}))
    assert refused.status_code == 400
    assert f"{name} holds {str(kind).removeprefix('torch.')}" in refused.json()["error"]["message"]
    assert ids(ask(admin, text="Whole")) == ids(before)


def test_weights_that_are_not_there_change_nothing(admin, checkpoint, tmp_path):
    before = ask(admin, text="Still")
    cut = write_checkpoint(tmp_path / "cut", seed=2)
    file = next(cut.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1000])
    (tmp_path / "empty").mkdir()
    for path in (str(tmp_path / "nowhere"), str(tmp_path / "empty"), str(cut), "/dev/null", "\x00"):
        refused = admin.post("/admin/update_weights", json={"path": path})
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["param"] == "path"
    after = ask(admin, text="Still")
    assert ids(after) == ids(before)
    assert after["weight_version"] == before["weight_version"]


@pytest.mark.parametrize("weights", [False, True])
def test_sleep_and_wake(server, admin, weights):
    session = ok(admin.post("/v1/sessions"))["id"]
    ask(admin, session_id=session)
    whole = ask(admin, text="Morning")
    ok(admin.post("/admin/sleep", json={"weights": weights}))
    assert ok(admin.get(f"/v1/sessions/{session}"))["device_bytes"] == 0
    answers: list[dict[str, Any]] = []

    def wait() -> None:
        with server.client("operator") as client:
            answers.append(ask(client, text="Morning"))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    assert not answers
    ok(admin.post("/admin/wake"))
    thread.join(30)
    assert ids(answers[0]) == ids(whole)
    assert ask(admin, session_id=session, text="On")
    stream = Stream(server)
    assert admin.post("/admin/sleep").status_code == 409
    assert len(stream.finish()) == 500
