"""Connections that stay silent, requests for others, a server that stops: nothing is left hanging, all is logged."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from holotron.server import http_server, middleware, streaming
from holotron.server.auth import Hosts
from holotron.server.errors import ApiError
from holotron.server.log_lines import JsonLines, TextLines
from holotron.server.settings import ServerSettings

from .live import Live, serving

CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3000, "ignore_eos": True}
PATIENCE = 20.0


def connect(live: Live) -> socket.socket:
    host, port = live.url.removeprefix("http://").split(":")
    end = socket.create_connection((host, int(port)))
    end.settimeout(PATIENCE)
    return end


def rest(end: socket.socket) -> bytes:
    received = b""
    while piece := end.recv(65536):
        received += piece
    return received


# ---- silence ----


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: local"])
def test_a_connection_without_a_whole_request_is_closed(live, monkeypatch, before, sent):
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.2)
    if before and not sent:
        return  # the time between requests is uvicorn's own
    with connect(live) as end:
        if before:
            end.sendall(before)
            answered = b""
            while not answered.endswith(b"}"):  # head and body may come one after the other
                answered += end.recv(65536)
        end.sendall(sent)
        assert rest(end) == b""  # and ends only when the server closes


def test_a_body_that_stops_coming_is_told(live, monkeypatch):
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.2)
    with connect(live) as end:
        end.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        end.sendall(b"Content-Length: 100\r\nConnection: close\r\n\r\n{")
        answered = rest(end)
    assert b" 408 " in answered.splitlines()[0]
    assert json.loads(answered.split(b"\r\n\r\n", 1)[1])["error"]["param"] == "body"


def test_peers_that_vanish_are_asked_for(live):
    with connect(live) as end:
        end.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert end.recv(100)
        accepted = [c.transport.get_extra_info("socket") for c in list(live.server.server_state.connections)]
        assert all(one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for one in accepted)


def test_a_client_that_reads_no_more_ends_the_stream(monkeypatch):
    monkeypatch.setattr(streaming, "SEND_SECONDS", 0.05)
    ended: list[str] = []

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"

    async def run() -> None:
        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        async def receive() -> Any:
            await asyncio.Event().wait()

        stream = streaming.EventStream(chunks(), lambda: ended.append("closed"))
        await asyncio.wait_for(stream({}, receive, send), PATIENCE)

    asyncio.run(run())
    assert ended == ["closed"]


# ---- for whom ----


@pytest.mark.parametrize(
    ("host", "status"), [("localhost", 200), ("[::1]:80", 200), ("LOCALHOST:1", 200), ("evil.example", 421)]
)
def test_on_loopback_requests_are_for_loopback(http, host, status):
    answer = http.get("/v1/models", headers={"Host": host})
    assert answer.status_code == status
    if status == 421:
        assert answer.json()["error"]["code"] == "host_not_allowed"
        assert "--allowed-host" in answer.json()["error"]["message"]


def test_other_names_are_allowed_where_told():
    class Sent:
        headers = {"host": "models.example:8000"}  # noqa: RUF012

    def asked(**settings: Any) -> None:
        Hosts(ServerSettings(**settings)).check(Sent())

    asked(allowed_hosts=("models.example",))
    asked(allowed_hosts=("*",))
    asked(host="0.0.0.0", api_keys=("k",))
    for settings in (
        {},
        {"host": "127.0.0.2"},
        {"host": "0.0.0.0", "api_keys": ("k",), "allowed_hosts": ("a.example",)},
    ):
        with pytest.raises(ApiError, match=r"models\.example"):
            asked(**settings)


# ---- the end ----


def test_after_the_grace_period_every_stream_and_request_is_told(checkpoint):
    streamed: list[str] = []
    whole: list[httpx.Response] = []
    begun = threading.Event()
    with serving(checkpoint, grace_seconds=0.3) as live:

        def stream() -> None:
            with live.client() as client, client.stream("POST", CHAT, json=LONG | {"stream": True}) as answer:
                for line in answer.iter_lines():
                    begun.set()
                    if line:
                        streamed.append(line)

        def ask() -> None:
            with live.client() as client:
                whole.append(client.post(CHAT, json=LONG))

        def upload() -> None:
            with connect(live) as end:
                end.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
                end.sendall(b"Content-Type: application/json\r\n\r\n{")
                begun.wait(PATIENCE)
                head, _, body = rest(end).partition(b"\r\n\r\n")
                whole.append(httpx.Response(int(head.split()[1]), content=body))

        threads = [threading.Thread(target=work, daemon=True) for work in (stream, ask, upload)]
        live._call("pause", "keep")
        for thread in threads:
            thread.start()
        assert begun.wait(PATIENCE)
        while live.state.admission.total < 2:
            threading.Event().wait(0.05)
        live.server.should_exit = True
        for thread in threads:
            thread.join(PATIENCE)
    assert streamed[-1] == "data: [DONE]"
    assert json.loads(streamed[-2].removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert [answer.status_code for answer in whole] == [503, 503]
    assert all(answer.json()["error"]["code"] == "shutting_down" for answer in whole)


# ---- the log ----


def test_the_log_has_the_code_of_an_error(http, caplog):
    def noted() -> list[str]:
        return [fields["code"] for record in caplog.records if "code" in (fields := getattr(record, "fields", {}))]

    with caplog.at_level(logging.INFO):
        http.post(CHAT, json={"messages": "x"})
        http.get("/v1/sessions/none")
        http.get("/v1/models", headers={"Host": "evil.example"})
        while len(noted()) < 3:  # a line is written once the answer is out
            threading.Event().wait(0.02)
    assert noted() == ["invalid_value", "session_not_found", "host_not_allowed"]
    record = next(record for record in caplog.records if getattr(record, "fields", {}).get("code") == noted()[1])
    assert json.loads(JsonLines().format(record))["code"] == "session_not_found"
    line = TextLines().format(record)
    assert " GET /v1/sessions/{session_id} 404 in 0." in line
    assert line.endswith("code=session_not_found")


@pytest.mark.parametrize("how", ["json", "text"])
def test_both_processes_write_the_log_as_asked(how):
    code = "import logging; from holotron.server.log_lines import write_logs; "
    code += f"write_logs({how!r}, logging.WARNING, process='engine'); logging.getLogger('a').warning('hot')"
    line = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    if how == "json":
        assert json.loads(line).items() >= {"event": "hot", "process": "engine", "level": "warning"}.items()
    else:
        assert "warning hot process=engine" in line
