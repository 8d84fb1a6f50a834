"""Whatever is sent, the answer says what is wrong with it, and the server goes on."""

from __future__ import annotations

import base64
import io
import json
import random
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from .live import Live

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PATIENCE = 10.0
HELLO = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


@pytest.fixture(scope="module", autouse=True)
def unharmed(live: Live) -> Iterator[None]:
    """After all of this the server answers, nothing is under way, and sessions have not piled up."""
    yield
    with live.client() as client:
        assert client.post(CHAT, json=HELLO).status_code == 200
        assert client.get("/health?deep=true").status_code == 200
    assert live.state.admission.total == 0
    deadline = time.monotonic() + PATIENCE
    while live.state.client.stats.values["running"]:  # the figures come once a second
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert live.state.client.stats.values["sessions"] <= live.state.settings.engine.kept_most
    assert live.state.client.restarts == 0


def send(http: httpx.Client, path: str, body: Any = None, **more: Any) -> httpx.Response:
    if body is not None:
        more |= {"content": json.dumps(body), "headers": {"content-type": "application/json"} | more.get("headers", {})}
    return http.post(path, timeout=PATIENCE, **more)


def refused(answer: httpx.Response, *names: str, status: int = 400) -> dict[str, Any]:
    """The error, which must have OpenAI's form and name the field."""
    assert answer.status_code == status, answer.text[:500]
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    for name in names or ("body",):
        assert name in error["message"]
        assert name in error["param"]
    assert len(answer.content) < 3000
    return error


def never_broken(answer: httpx.Response) -> None:
    """Either it was good enough, or the error names something."""
    assert answer.status_code < 500, answer.text[:500]
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["param"], error
        assert error["message"], error


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


def chat(**changes: Any) -> dict[str, Any]:
    return HELLO | changes


def says(content: Any) -> dict[str, Any]:
    return chat(messages=[{"role": "user", "content": content}])


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f"} | function}


def schema(value: Any) -> dict[str, Any]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": value}})


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


HUGE = 10**400
NAN, INFINITY = float("nan"), float("inf")
WRONG_CHATS: list[tuple[dict[str, Any], str]] = [
    ({}, "messages"),
    (chat(messages=[]), "messages"),
    (chat(messages="Hello"), "messages"),
    (chat(messages=[{}]), "messages.0.role"),
    (chat(messages=[{"role": "king", "content": "a"}]), "messages.0.role"),
    (chat(messages=[{"role": "user", "content": "a", "colour": 1}]), "messages.0.colour"),
    (says(7), "messages.0.content"),
    (says([{"type": "video"}]), "messages.0.content"),
    (says([{"type": "text"}]), "messages.0.content.list[tagged-union[TextPart,ImagePart]].0.text.text"),
    (says("\ud800"), "messages.0.content"),
    (chat(**{"\udfff": 1}), "body"),
    (chat(metadata={"\udfff": "a"}), "metadata"),
    (chat(model="gpt-4"), "model"),
    (chat(unknown=1), "unknown"),
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
    (chat(top_logprobs=3), "body"),
    (chat(logprobs=True, top_logprobs=1000), "top_logprobs"),
    (chat(session_id=""), "session_id"),
    (chat(session_id="a", n=2), "n"),
    (chat(stream_options=7), "stream_options"),
    (chat(metadata={"a": 7}), "metadata.a"),
    (chat(chat_template_kwargs={"self": 1}), "chat_template_kwargs.self"),
    (chat(chat_template_kwargs={"messages": 1}), "chat_template_kwargs.messages"),
    (chat(chat_template_kwargs=nested(400)), "chat_template_kwargs"),
    (chat(tool_choice="required"), "body"),
    (chat(tools=[tool(name="a b")]), "tools"),
    (chat(tools=[tool(), tool()]), "tools"),
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
    ({"prompt": "a", "echo": True}, "echo"),
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
    refused(send(http, "/tokenize", {**HELLO, "max_tokens": 3}), "max_tokens")
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


# ---- images ----


def png(width: int, height: int, pixels: bytes = b"\0") -> bytes:
    """A PNG whose header says what it likes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def picture(form: str = "PNG", size: tuple[int, int] = (64, 48), mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, form, **options)
    return buffer.getvalue()


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def look(http: httpx.Client, address: str) -> httpx.Response:
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": address}}]
    return send(http, CHAT, says(parts))


BAD_IMAGES = {
    "nothing": "",
    "no URL": "hello",
    "no comma": "data:image/png;base64",
    "no base64": "data:image/png,abc",
    "broken base64": "data:image/png;base64,@@@@",
    "cut base64": url(picture())[:-3],
    "surrogate in base64": "data:image/png;base64,\u00e9",
    "empty": url(b""),
    "text": url(b"hello"),
    "SVG": url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml"),
    "cut header": url(picture()[:20]),
    "cut pixels": url(picture(size=(200, 200))[:-40]),
    "bomb": url(png(60_000, 60_000)),
    "huge sides": url(png(2**31 - 1, 2**31 - 1)),
    "no width": url(png(0, 10)),
    "no height": url(png(10, 0)),
    "1×100000": url(png(1, 100_000)),
    "no pixels": url(png(100, 100)),
    "file": "file:///etc/passwd",
    "http": "http://127.0.0.1/a.png",
    "javascript": "javascript:alert(1)",
    "long": "http://example.com/" + "a" * 1_000_000,
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_a_bad_image_is_named(http, name):
    error = refused(look(http, BAD_IMAGES[name]), "messages.0.content.1.image_url.url")
    assert error["code"] == "invalid_image"


def test_strange_images_are_looked_at(http):
    frames = [Image.new("RGB", (40, 40), color) for color in ("red", "blue")]
    moving = io.BytesIO()
    frames[0].save(moving, "GIF", save_all=True, append_images=frames[1:])
    for data in (
        moving.getvalue(),
        picture("JPEG", mode="CMYK"),
        picture("JPEG", mode="L"),
        picture("PNG", mode="I;16"),
        picture("PNG", mode="LA"),
        picture("WEBP"),
        picture("PNG", size=(1, 1)),
        picture("PNG", size=(3000, 20)),
    ):
        assert look(http, url(data)).status_code == 200
    assert look(http, url(picture("JPEG"), "text/plain")).status_code == 200  # the file itself tells what it is


# ---- one place replaced ----

VALID = {
    CHAT: {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "done"},
        ],
        "max_tokens": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "seed": 1,
        "stop": ["x"],
        "stop_token_ids": [9],
        "logit_bias": {"65": 1.5},
        "n": 2,
        "logprobs": True,
        "top_logprobs": 2,
        "tools": [tool(description="d", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})],
        "tool_choice": "auto",
        "stream": False,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "integer"}}},
        "chat_template_kwargs": {"a": [1, {"b": "c"}]},
        "return_token_ids": True,
        "user": "me",
    },
    TEXT: {
        "prompt": [[65, 66], [67]],
        "max_tokens": 2,
        "logprobs": 1,
        "structured_outputs": {"regex": "[a-z]+"},
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "repetition_penalty": 1.1,
        "min_tokens": 0,
        "ignore_eos": True,
    },
    "/tokenize": {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool()], "add_generation_prompt": True},
    "/detokenize": {"tokens": [65, 66], "skip_special_tokens": True},
    "/v1/sessions": {"ttl": 0.5, "on_update": "keep", "keep_images": None},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {key: replaced(item, path[1:], new) if key == path[0] else item for key, item in value.items()}
    return [replaced(item, path[1:], new) if i == path[0] else item for i, item in enumerate(value)]


ODD = st.sampled_from(
    [
        HUGE,
        -HUGE,
        2**63,
        2**31,
        -1,
        0,
        1e308,
        5e-324,
        NAN,
        INFINITY,
        -INFINITY,
        "",
        "\x00",
        "\ud800",
        "\U0001f600",
        "a" * 20_000,
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("path", VALID)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_anywhere(http, path, data):
    body = VALID[path]
    place = data.draw(st.sampled_from(list(places(body))))
    answer = send(http, path, replaced(body, place, data.draw(VALUES)))
    never_broken(answer)


# ---- below HTTP ----


def raw(live: Live, request: bytes, more: bytes = b"") -> bytes:
    """What comes back for these bytes, after which the client says no more."""
    host, port = live.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(request)
        if more:
            connection.sendall(more)
        with suppress(OSError):  # the server may have hung up on us already
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
BROKEN = {
    "a cut chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n64\r\n{",
    "no chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    "a wrong chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a short body": HEAD + b"Content-Length: 1000\r\n\r\n{}",
    "a wrong length": HEAD + b"Content-Length: many\r\n\r\n{}",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n{}",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "no HTTP": b"hello\r\n\r\n",
    "a NUL": b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a long path": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "a long header": b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 5000 + b"\r\n",
    "half a head": b"GET /health HTTP/1.1\r\nHo",
    "bytes": random.Random(0).randbytes(4096),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_http_ends_the_connection_and_nothing_else(live, http, name):
    try:
        answer = raw(live, BROKEN[name])
    except (ConnectionResetError, BrokenPipeError):
        answer = b""
    assert not answer.startswith(b"HTTP/1.1 5")
    assert http.get("/health").status_code == 200


def test_strange_headers_and_paths_do_no_harm(http):
    for header in ("Bearer", "Bearer  a b", "Basic YTpi", "Bearer \u00ff\u00fe", "x" * 10_000):
        headers = {b"Authorization": header.encode("latin-1")}
        assert http.get("/v1/models", headers=headers).status_code == 200  # no key is wanted here
    for path in ("/%ff", "/v1/sessions/%00", "/v1/sessions/%ed%a0%80", "/v1/sessions/..%2f..", "/v1/models/%0d%0a"):
        answer = http.get(path)
        assert answer.status_code == 404
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO"):
        answer = http.request(method, CHAT)
        assert answer.status_code == 405
        assert "POST" in answer.headers["allow"]
        assert answer.json()["error"]["message"]


def test_a_gigantic_text_is_refused_quickly(http):
    began = time.monotonic()
    refused(send(http, CHAT, says("a" * 17_000_000)), "messages.0.content")
    assert send(http, TEXT, {"prompt": "a" * 2_000_000}).status_code == 400
    assert time.monotonic() - began < PATIENCE
