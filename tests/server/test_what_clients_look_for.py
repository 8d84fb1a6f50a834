"""Small things that clients of other servers look for."""

from __future__ import annotations

import gzip
import json
import threading
from typing import Any

import pytest
import torch

from holotron.model.checkpoint.reader import load_checkpoint

from .test_openai_client import picture

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": 6}


def says(text: Any = "Hello", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **GREEDY, **more}


def chunks(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]


def test_what_is_served(http, checkpoint):
    (card,) = http.get("/v1/models").json()["data"]
    assert card["root"] == str(checkpoint)
    info = http.get("/tokenizer_info").json()
    assert "<think>" in info["chat_template"]
    assert info["markup"]["</think>"] >= 0
    assert info["image_token_id"] == 5


def test_the_way_in(http):
    places = http.get("/").json()
    for name in ("docs", "health", "metrics", "models"):
        assert http.get(places[name]).status_code == 200


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/chat/completions", "did you mean /v1/chat/completions?"),
        ("/v1/v1/messages", "did you mean /v1/messages?"),
        ("/nothing", "GET / tells what there is"),
    ],
)
def test_a_wrong_base_url_is_told(http, path, hint):
    answer = http.post(path, json={})
    assert answer.status_code == 404
    assert f"there is nothing at {path}; {hint}" == answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/v1/models"])
def test_what_watches_a_server_may_ask_for_heads(http, path):
    head, whole = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]


def test_a_wrong_method_is_told(http):
    answer = http.get(CHAT)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["message"] == f"GET is not for {CHAT}; it takes POST"


def test_a_compressed_body_is_told(http):
    body = gzip.compress(json.dumps(says()).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = http.post(CHAT, content=body, headers=headers)
    assert answer.status_code == 415
    assert "it is compressed (gzip); send it as it is" in answer.json()["error"]["message"]
    identity = http.post(CHAT, json=says(), headers={"Content-Encoding": "identity"})
    assert identity.status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/messages", {"messages": [], "max_tokens": 5}, "computer_20250124"),
        ("/v1/responses", {"input": "Hello"}, "web_search"),
        (CHAT, says(), "web_search_preview"),
    ],
)
def test_tools_that_only_their_provider_has_are_told(http, path, body, kind):
    answer = http.post(path, json=body | {"tools": [{"type": kind, "name": "computer"}]})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "tools.0.type"
    assert f"'{kind}' is a tool of a provider's own; give it as a function" in error["message"]


@pytest.mark.parametrize("n", [1, 2])
def test_more_tokens_than_fit_are_told_apart_from_a_long_prompt(http, n):
    most = http.get("/v1/models").json()["data"][0]["max_model_len"]
    read = http.post(CHAT, json=says(max_tokens=1)).json()["usage"]["prompt_tokens"]
    told = http.post(CHAT, json=says(max_tokens=most, n=n)).json()["error"]
    assert told["message"].endswith(f"that fit here; ask for at most {most - read}")
    assert f"max_tokens {most} after {read} tokens" in told["message"]


def test_the_load(live, http):
    assert http.get("/load").json() == {"server_load": 0}
    body = says(max_tokens=3000, stream=True)
    with live.paused(), live.client() as other, other.stream("POST", CHAT, json=body) as stream:
        lines = stream.iter_lines()  # held: without it the response would be closed
        next(lines)
        assert http.get("/load").json() == {"server_load": 1}


def test_a_schema_among_the_forms(http):
    for schema in ({"enum": [7]}, '{"enum": [7]}'):
        body = says(structured_outputs={"json": schema}, max_tokens=20)
        del body["ignore_eos"]
        assert http.post(CHAT, json=body).json()["choices"][0]["message"]["content"] == "7"
    assert http.post(TEXT, json={"prompt": "a", "structured_outputs": {"json": "{"}}).status_code == 400


def test_a_salt_keeps_prompts_apart(http):
    def cached(**more: Any) -> int:
        usage = http.post(CHAT, json=says("A prompt with a salt", **more)).json()["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    assert cached(cache_salt="a") == 0
    assert cached(cache_salt="a") > 0
    assert cached(cache_salt="b") == 0
    assert cached() == 0


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_streams_tell_prompt_and_usage_as_they_go(http, path):
    body = says(stream=True) if path == CHAT else {"prompt": "Hello", "stream": True, **GREEDY}
    body |= {"return_token_ids": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    told = chunks(http.post(path, json=body))
    prompt = told[0]["prompt_token_ids"] if path == CHAT else told[0]["choices"][0]["prompt_token_ids"]
    assert len(prompt) == told[-1]["usage"]["prompt_tokens"]
    counts = [chunk["usage"]["completion_tokens"] for chunk in told]
    assert counts == sorted(counts)
    assert counts[-1] == 6
    assert len(set(counts)) > 2
    assert sum("prompt_token_ids" in choice for chunk in told for choice in chunk["choices"]) == (path == TEXT)


def test_images_with_a_prompt_in_tokens(http):
    """The tokens that a chat was read as, sent back with its images, are answered alike."""
    parts = [{"type": "text", "text": "What?"}] + [
        {"type": "image_url", "image_url": {"url": picture(color)}} for color in ("red", "blue")
    ]
    chat = http.post(CHAT, json=says(parts, return_token_ids=True, cache_salt="chat")).json()
    prompt = {"prompt": chat["prompt_token_ids"], "return_token_ids": True, **GREEDY}
    answer = http.post(TEXT, json=prompt | {"images": [picture("red"), picture("blue")]}).json()
    assert answer["choices"][0]["token_ids"] == chat["choices"][0]["token_ids"]
    for wrong in ({}, {"images": [picture()]}, {"images": [picture()] * 3}):
        refused = http.post(TEXT, json=prompt | wrong)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "prompt"
    broken = http.post(TEXT, json=prompt | {"images": ["data:image/png;base64,no", picture()]})
    assert broken.json()["error"]["param"] == "images.0"


@pytest.mark.parametrize("by", ["request", "answer", "all"])
def test_a_turn_is_aborted_by_name(live, http, by):
    begun, told = threading.Event(), []

    def read() -> None:
        body = says(max_tokens=3500, stream=True)
        with (
            live.client() as other,
            other.stream("POST", CHAT, json=body, headers={"X-Request-Id": "mine.1"}) as stream,
        ):
            assert stream.headers["x-request-id"] == "mine.1"
            for line in stream.iter_lines():
                if line.startswith("data: {"):
                    told.append(json.loads(line[6:]))
                    begun.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert begun.wait(60)
    assert http.post("/abort_request", json={"rid": "another"}).json() == {"aborted": 0}
    names = {"request": {"request_id": "mine.1"}, "answer": {"rid": told[0]["id"]}, "all": {"abort_all": True}}
    assert http.post("/abort_request", json=names[by]).json() == {"aborted": 1}
    thread.join(60)
    assert not thread.is_alive()
    assert told[-1]["choices"][0]["finish_reason"] == "abort"
    assert http.post("/abort_request", json={}).status_code == 400
    assert live.state.admission.total == 0


def test_figures_that_dashboards_know(http):
    def figures() -> dict[str, float]:
        lines = [line for line in http.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines if "_bucket" not in line}

    before = figures()
    usage = http.post(CHAT, json=says("Figures")).json()["usage"]
    after = figures()
    for name in ("queue", "prefill", "decode", "inference"):
        assert after[f"vllm:request_{name}_time_seconds_count"] == before[f"vllm:request_{name}_time_seconds_count"] + 1
    for name, tokens in (("prompt", usage["prompt_tokens"]), ("generation", 6)):
        assert after[f"vllm:request_{name}_tokens_sum"] - before[f"vllm:request_{name}_tokens_sum"] == tokens
    assert after["vllm:request_prefill_time_seconds_sum"] > before["vllm:request_prefill_time_seconds_sum"]
    assert after["vllm:request_decode_time_seconds_sum"] > before["vllm:request_decode_time_seconds_sum"]
    assert "vllm:num_preemptions_total" in after
    assert "vllm:request_time_per_output_token_seconds_count" in after


@pytest.fixture(scope="module")
def scored(checkpoint):
    """What the model itself gives the tokens of a text."""
    model = load_checkpoint(checkpoint, "cpu")

    def score(ids: list[int]) -> list[float]:
        with torch.inference_mode():
            (logits,) = model.score([ids])
        return logits.float().log_softmax(-1)[range(len(ids) - 1), ids[1:]].tolist()

    return score


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_is_echoed_with_its_log_probabilities(http, scored, stream):
    prompt = "The rain in Spain stays mainly in the plain. " * 80  # longer than a step takes
    body = {"prompt": prompt, "echo": True, "logprobs": 2, "return_token_ids": True, "stream": stream, **GREEDY}
    for _ in range(2):  # a prompt that was computed before is scored all the same
        answer = http.post(TEXT, json=body)
        if stream:
            told = [chunk["choices"][0] for chunk in chunks(answer)]
            text = "".join(choice["text"] for choice in told)
            parts = [choice["logprobs"] for choice in told if choice["logprobs"]]
            logprobs = {key: [value for part in parts for value in part[key]] for key in parts[0]}
            ids, said = told[0]["prompt_token_ids"], [id_ for choice in told for id_ in choice["token_ids"]]
        else:
            (choice,) = answer.json()["choices"]
            text, logprobs = choice["text"], choice["logprobs"]
            ids, said = choice["prompt_token_ids"], choice["token_ids"]
        assert text.startswith(prompt)
        assert len(logprobs["tokens"]) == len(ids) + len(said) == len(logprobs["text_offset"])
        assert "".join(logprobs["tokens"][: len(ids)]) == prompt
        assert logprobs["token_logprobs"][0] is None
        assert logprobs["top_logprobs"][0] is None
        assert logprobs["token_logprobs"][1:] == pytest.approx(scored([*ids, *said]), abs=2e-3)
        assert all(len(top) >= 2 for top in logprobs["top_logprobs"][1:])


def test_the_log_probabilities_of_messages(http, scored):
    answer = http.post(CHAT, json=says("Score me", prompt_logprobs=1, return_token_ids=True)).json()
    told, ids = answer["prompt_logprobs"], answer["prompt_token_ids"]
    assert told[0] is None
    own = [entry[str(id_)]["logprob"] for entry, id_ in zip(told[1:], ids[1:], strict=True)]
    assert own == pytest.approx(scored(ids), abs=2e-3)
    assert http.post(CHAT, json=says(prompt_logprobs=1, n=2)).json()["error"]["param"] == "n"
    session = http.post("/v1/sessions").json()["id"]
    first = http.post(CHAT, json=says("One", session_id=session, return_token_ids=True)).json()
    more = http.post(CHAT, json=says("Two", session_id=session, prompt_logprobs=0, return_token_ids=True)).json()
    new = more["prompt_token_ids"]
    known = [*first["prompt_token_ids"], *first["choices"][0]["token_ids"]]
    own = [entry[str(id_)]["logprob"] for entry, id_ in zip(more["prompt_logprobs"], new, strict=True)]
    assert own == pytest.approx(scored([*known, *new])[len(known) - 1 :], abs=2e-3)
    assert (
        http.post(TEXT, json={"prompt": "Hi", "echo": True, "max_tokens": 1}).json()["choices"][0]["text"][:2] == "Hi"
    )
