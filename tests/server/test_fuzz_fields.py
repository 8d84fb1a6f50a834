"""Whatever is wrong with a body, the answer names it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from .hostile import (
    CHAT,
    HELLO,
    HUGE,
    INFINITY,
    NAN,
    PATIENCE,
    TEXT,
    chat,
    nested,
    never_broken,
    refused,
    says,
    send,
    tool,
)

pytestmark = pytest.mark.usefixtures("unharmed")


# ---- bodies that are none ----

BODIES = {
    "empty": b"",
    "nothing but space": b"  \n ",
    "broken": b'{"messages": [',
    "text": b"hello",
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "two values": b"{} {}",
    "wrong UTF-8": b'{"messages": "\xff\xfe\xc0"}',
    "UTF-16": json.dumps(HELLO).encode("utf-16")[:-1],
    "deep lists": b"[" * 100_000,
    "deep lists, closed": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "too many digits": b'{"max_tokens": ' + b"9" * 5000 + b"}",
}


@pytest.mark.parametrize("path", [CHAT, TEXT, "/tokenize", "/detokenize", "/v1/sessions"])
@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_none_is_refused(http, path, name):
    answer = send(http, path, content=BODIES[name], headers={"content-type": "application/json"})
    if path == "/v1/sessions" and name in ("empty", "null"):
        assert answer.status_code == 200  # everything about a session has a default
        assert http.delete(f"/v1/sessions/{answer.json()['id']}").status_code == 200
    elif name == "too many digits":
        never_broken(answer)
        assert answer.status_code == 400
    else:
        refused(answer)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "image/png", "json", "a/b;c=d"]
)
def test_another_content_type_is_no_json(http, kind):
    refused(send(http, CHAT, content=json.dumps(HELLO), headers={"content-type": kind}))


def test_a_repeated_key_counts_once(http):
    content = b'{"messages": 7, "messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "max_tokens": 2}'
    answer = send(http, CHAT, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] <= 2


# ---- one thing wrong ----


def schema(value: Any) -> dict[str, Any]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": value}})


WRONG_CHATS: list[tuple[dict[str, Any], str]] = [
    ({}, "messages"),
    (chat(messages=[]), "messages"),
    (chat(messages="Hello"), "messages"),
    (chat(messages=[{}]), "messages.0.role"),
    (chat(messages=[{"role": "king", "content": "a"}]), "messages.0.role"),
    (says(7), "messages.0.content"),
    (says([{"type": "video"}]), "messages.0.content"),
    (says([{"type": "text"}]), "messages.0.content.0.text"),
    (says("\ud800"), "messages.0.content"),
    (chat(**{"\udfff": 1}), "body"),
    (chat(metadata={"\udfff": "a"}), "metadata"),
    (chat(model="gpt-4"), "model"),
    (chat(messages=[{"role": "user", "content": [{"type": "text", "text": ""}] * 17_000}]), "messages"),
    (chat(messages=[{"role": "user", "content": ""}] * 17_000), "messages"),
    (chat(tools=[tool(parameters={"enum": list(range(200_000))})]), "tools"),
    (chat(temperature=NAN), "temperature"),
    (chat(temperature=INFINITY), "temperature"),
    (chat(temperature=-1), "temperature"),
    (chat(temperature=HUGE), "temperature"),
    (chat(temperature="warm"), "temperature"),
    (chat(top_p=0), "top_p"),
    (chat(top_p=NAN), "top_p"),
    (chat(top_k=HUGE), "top_k"),
    (chat(top_k=1.5), "top_k"),
    (chat(seed=HUGE), "seed"),
    (chat(seed=True), "seed"),
    (chat(max_tokens=0), "max_tokens"),
    (chat(max_tokens=-5), "max_tokens"),
    (chat(max_tokens=True), "max_tokens"),
    (chat(max_tokens=HUGE), "max_tokens"),
    (chat(max_tokens=900_000), "messages"),
    (chat(min_tokens=2), "min_tokens"),
    (chat(n=0), "n"),
    (chat(n=500), "n"),
    (chat(stop=""), "stop"),
    (chat(stop=["a", ""]), "stop"),
    (chat(stop=["a"] * 100), "stop"),
    (chat(stop="x" * 10_000), "stop"),
    (chat(stop_token_ids=[-1]), "stop_token_ids.0"),
    (chat(stop_token_ids=[288]), "stop_token_ids"),
    (chat(stop_token_ids=[True]), "stop_token_ids.0"),
    (chat(stop_token_ids=[1.0]), "stop_token_ids.0"),
    (chat(stop_token_ids=[HUGE]), "stop_token_ids.0"),
    (chat(logit_bias={"288": 1}), "logit_bias"),
    (chat(logit_bias={"-1": 1}), "logit_bias"),
    (chat(logit_bias={"x": 1}), "logit_bias"),
    (chat(logit_bias={"1": 1000}), "logit_bias.1"),
    (chat(logit_bias={"1": NAN}), "logit_bias.1"),
    (chat(top_logprobs=3), "top_logprobs"),
    (chat(logprobs=True, top_logprobs=1000), "top_logprobs"),
    (chat(session_id=""), "session_id"),
    (chat(session_id="a", n=2), "n"),
    (chat(stream_options=7), "stream_options"),
    (chat(metadata={"a": 7}), "metadata.a"),
    (chat(chat_template_kwargs={"self": 1}), "chat_template_kwargs.self"),
    (chat(chat_template_kwargs={"messages": 1}), "chat_template_kwargs.messages"),
    (chat(chat_template_kwargs=nested(400)), "chat_template_kwargs"),
    (chat(tool_choice="required"), "tool_choice"),
    (chat(tools=[tool(name="a b")]), "tools"),
    (chat(tools=[tool(), tool()]), "tools"),
    (chat(tools={}), "tools"),
    (chat(tools=["x"]), "tools.0"),
    (chat(tools=[{"type": "web"}]), "tools.0.type"),
    (chat(tools=[{"type": "function"}]), "tools.0.function"),
    (chat(tools=[{"type": "function", "function": {}}]), "tools.0.function.name"),
    (chat(tools=[tool(description=1)]), "tools.0.function.description"),
    (chat(tools=[tool(parameters=[])]), "tools.0.function.parameters"),
    (chat(tools=[tool(parameters={"type": "array"})]), "tools"),
    (chat(tools=[tool(parameters={"properties": 7})]), "tools"),
    (chat(tools=[tool(parameters=nested(400))]), "tools"),
    (chat(tools=[tool()], tool_choice={"type": "function", "function": {"name": "g"}}), "tool_choice"),
    (chat(tools=[tool(parameters={"properties": {"a": {"type": "nope"}}})], tool_choice="required"), "tools"),
    (chat(tools=[tool(parameters={"properties": {"a": {"$ref": "#/no"}}})], tool_choice="required"), "tools"),
    (chat(tools=[tool(parameters={"properties": {"a": {"pattern": "("}}})], tool_choice="required"), "tools"),
    (chat(response_format={"type": "json_schema"}), "response_format"),
    (chat(response_format={"type": "xml"}), "response_format"),
    (schema({"type": "nope"}), "response_format"),
    (schema({"$ref": "http://127.0.0.1/x"}), "response_format"),
    (schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}), "response_format"),
    (schema({"type": "string", "minLength": HUGE}), "response_format"),
    (schema({"enum": []}), "response_format"),
    (schema({"not": {}}), "response_format"),
    (schema(nested(400)), "response_format"),
    (chat(structured_outputs={}), "structured_outputs"),
    (chat(structured_outputs={"regex": "a", "choice": ["a"]}), "structured_outputs"),
    (chat(structured_outputs={"regex": "("}), "structured_outputs"),
    (chat(structured_outputs={"regex": "(" * 5000 + ")" * 5000}), "structured_outputs"),
    (chat(structured_outputs={"regex": "x" * 5_000_000}), "structured_outputs"),
    (chat(structured_outputs={"choice": []}), "structured_outputs"),
    (chat(structured_outputs={"grammar": ""}), "structured_outputs"),
    (chat(structured_outputs={"grammar": "start: start start"}), "structured_outputs"),
    (chat(structured_outputs={"grammar": "start: nothing"}), "structured_outputs"),
    (chat(structured_outputs={"grammar": "\x00"}), "structured_outputs"),
    (says("long " * 3000), "messages"),
]


@pytest.mark.parametrize(("body", "field"), WRONG_CHATS, ids=[f"{i}-{f}" for i, (_, f) in enumerate(WRONG_CHATS)])
def test_a_wrong_field_is_named(http, body, field):
    began = time.monotonic()
    refused(send(http, CHAT, body), field, status=404 if field == "model" else 400)
    assert time.monotonic() - began < PATIENCE


WRONG_TEXTS: list[tuple[dict[str, Any], str]] = [
    ({}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [["a"]]}, "prompt"),
    ({"prompt": ["a", 1]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [288]}, "prompt"),
    ({"prompt": [2**31]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [1.0]}, "prompt"),
    ({"prompt": [None]}, "prompt"),
    ({"prompt": [5]}, "prompt"),  # the image token
    ({"prompt": [1] * 5000}, "prompt"),
    ({"prompt": "a", "best_of": 3}, "best_of"),
    ({"prompt": "a", "suffix": "b"}, "suffix"),
    ({"prompt": ["a"] * 40, "n": 2}, "n"),
    ({"prompt": "a", "logprobs": True}, "logprobs"),
    ({"prompt": "a", "structured_outputs": {"regex": "["}}, "structured_outputs"),
]


@pytest.mark.parametrize(("body", "field"), WRONG_TEXTS, ids=[f"{i}-{f}" for i, (_, f) in enumerate(WRONG_TEXTS)])
def test_a_wrong_prompt_is_named(http, body, field):
    refused(send(http, TEXT, body), field)


def test_other_routes_name_their_fields(http):
    refused(send(http, "/detokenize", {"tokens": [1, 288]}), "tokens.1")
    refused(send(http, "/detokenize", {"tokens": [1, -1]}), "tokens.1")
    refused(send(http, "/tokenize", {}), "body")
    refused(send(http, "/tokenize", {"messages": []}), "messages")
    refused(send(http, "/tokenize", {"prompt": "a", "messages": []}), "body")
    refused(send(http, "/tokenize", {"messages": HELLO["messages"], "chat_template_kwargs": {"self": 1}}), "self")
    for wrong in ({"ttl": 0}, {"ttl": -1}, {"ttl": NAN}, {"ttl": HUGE}, {"on_update": "forget"}, {"keep_images": -1}):
        refused(send(http, "/v1/sessions", wrong), *wrong)
    session = http.post("/v1/sessions").json()["id"]
    for path, body, field in (
        ("turns", {"messages": [], "max_tokens": 1}, "messages"),
        ("turns", HELLO | {"session_id": "other"}, "session_id"),
        ("turns", HELLO | {"n": 2}, "n"),
        ("fork", {"n": 0}, "n"),
        ("fork", {"n": HUGE}, "n"),
        ("rollback", {"turn": 0}, "turn"),
        ("rollback", {"turn": "last"}, "turn"),
    ):
        refused(send(http, f"/v1/sessions/{session}/{path}", body), field)
    refused(send(http, TEXT, {"prompt": "", "session_id": session}), "prompt")
    assert http.delete(f"/v1/sessions/{session}").status_code == 200


HARD = [
    {"regex": "((a{1,1000}){1,1000}){1,1000}"},
    {"regex": "(a|b|ab)*c{1,900}(a|aa)+"},
    {"regex": "(.*a.{20}){9}"},
    {"grammar": "start: (A | B | start start)*\nA: /[a-z]{1,500}/\nB: /[a-z]+[0-9]*/"},
    {"choice": ["a" * length for length in range(1, 400)]},
]


@pytest.mark.parametrize("number", range(len(HARD)))
def test_a_hard_grammar_takes_no_one_down(http, number):
    """It is followed as far as it goes or refused; either way soon."""
    never_broken(send(http, CHAT, chat(structured_outputs=HARD[number], max_tokens=60)))
    wanted = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": HARD[0]["regex"]}}}
    never_broken(send(http, CHAT, chat(response_format=wanted, max_tokens=60)))


def test_arguments_of_earlier_calls_may_be_anything(http):
    for arguments in ("{}", "not JSON", "[" * 100_000, json.dumps(nested(900)), '{"a": NaN}', ""):
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "?"}]
        never_broken(send(http, CHAT, chat(messages=messages, tools=[tool()])))
