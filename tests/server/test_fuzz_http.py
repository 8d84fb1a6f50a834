"""Bytes that are no HTTP, and HTTP that is not ours."""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress

import pytest

from .hostile import CHAT, PATIENCE, TEXT, refused, says, send
from .live import Live

pytestmark = pytest.mark.usefixtures("unharmed")


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
