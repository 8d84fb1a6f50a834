"""Who may do what, how much of it, and what others get to know of it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from PIL import Image

from holotron.server.engine_client import EngineRefused
from holotron.server.log_lines import JsonLines
from holotron.server.settings import ServerSettings

from .live import Live, serving

CHAT = "/v1/chat/completions"
MARK = "XYZZY-MARK"


def hello(content: Any = "Hello", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 4, "temperature": 0} | more


def long(**more: Any) -> dict[str, Any]:
    return hello(max_tokens=3000, ignore_eos=True, stream=True, **more)


@pytest.fixture(scope="module")
def strict(checkpoint) -> Iterator[Live]:
    with serving(
        checkpoint,
        api_keys=("alpha", "beta"),
        admin_key="gamma",
        max_body_bytes=100_000,
        max_image_bytes=20_000,
        max_image_pixels=100_000,
        max_images=2,
        max_per_key=2,
        max_queue=3,
        max_sessions_per_key=4,
        strict=True,
    ) as live:
        yield live


@pytest.fixture(scope="module")
def pictures() -> Iterator[tuple[int, list[str]]]:
    """A web server on this machine: its port, and the paths that were asked for."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1/other.png")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, seen
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def hasty(checkpoint, pictures) -> Iterator[Live]:
    """A server whose turns may take a third of a second, and that fetches images."""
    hosts = (f"127.0.0.1:{pictures[0]}", f"localhost:{pictures[0]}")
    with serving(checkpoint, request_seconds=0.3, cors_origins=("https://a.example",), image_hosts=hosts) as live:
        yield live


@pytest.fixture
def alpha(strict):
    with strict.client("alpha") as client:
        yield client


@pytest.fixture
def beta(strict):
    with strict.client("beta") as client:
        yield client


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text[:300]
    found = answer.json()["error"]
    assert found.keys() == {"message", "type", "param", "code"}
    return found


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- keys ----


@pytest.mark.parametrize(
    "header",
    [
        *(None, "", "Bearer", "Bearer alph", "Bearer alphaa", "Bearer ALPHA", "Basic alpha", "alpha"),
        *("Bearer alpha beta", "Bearer " + "a" * 8000, "Bearer \u00e9", "Bearer alpha\x01"),
    ],
)
def test_a_wrong_key_opens_nothing(strict, header):
    headers = {} if header is None else {b"Authorization": header.encode("latin-1")}
    with strict.client() as client:
        for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/v1/sessions"), ("POST", "/tokenize")):
            answer = client.request(method, path, headers=headers)
            assert error(answer, 401)["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/health", headers=headers).status_code == 200


def test_without_a_key_no_body_is_read(strict):
    """Else anybody could have the server take in and parse what they like."""
    with strict.client() as client:
        headers = {"content-type": "application/json"}
        assert error(client.post(CHAT, content=b"{broken", headers=headers), 401)
        assert error(client.post(CHAT, json=hello(temperature="hot")), 401)


def test_every_key_opens_the_server(strict, alpha, beta):
    for client in (alpha, beta):
        assert client.get("/v1/models").status_code == 200
    with strict.client("gamma") as admin:  # whoever may replace the weights may also ask
        assert admin.get("/v1/models").status_code == 200
        assert admin.get("/v1/models", headers={"Authorization": "bearer gamma"}).status_code == 200
    assert error(alpha.get("/admin/status"), 401)


def test_a_session_of_another_key_does_not_exist(alpha, beta):
    own = alpha.post("/v1/sessions").json()["id"]
    never = "0" * len(own)
    assert alpha.post(f"/v1/sessions/{own}/turns", json=hello()).status_code == 200
    for method, path, body in (
        ("GET", "/v1/sessions/{}", None),
        ("DELETE", "/v1/sessions/{}", None),
        ("POST", "/v1/sessions/{}/turns", hello()),
        ("POST", "/v1/sessions/{}/fork", {"n": 2}),
        ("POST", "/v1/sessions/{}/rollback", {}),
        ("POST", "/v1/sessions/{}/park", None),
        ("POST", "/v1/sessions/{}/resume", None),
        ("POST", CHAT, hello(session_id="ID")),
        ("POST", "/v1/completions", {"prompt": "a", "session_id": "ID"}),
    ):
        answers = []
        for id_ in (own, never):
            sent = None if body is None else json.loads(json.dumps(body).replace("ID", id_))
            answer = beta.request(method, path.format(id_), json=sent)
            error(answer, 404)
            headers = {key: value for key, value in answer.headers.items() if key not in ("date", "x-request-id")}
            answers.append((answer.content.replace(id_.encode(), b"ID"), headers))
        assert answers[0] == answers[1]
    assert beta.get("/v1/sessions").json()["data"] == []
    assert [session["id"] for session in alpha.get("/v1/sessions").json()["data"]] == [own]
    assert alpha.delete(f"/v1/sessions/{own}").json() == {"id": own, "deleted": True}
    gone = alpha.get(f"/v1/sessions/{own}")
    assert gone.content.replace(own.encode(), b"ID") == answers[1][0]


def test_what_one_key_has_computed_is_not_found_by_another(alpha, beta):
    secret = hello("Between us: the rain in Spain stays mainly in the plain.")
    said = alpha.post(CHAT, json=secret).json()["choices"][0]["message"]["content"]
    said_more = [*secret["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": "Really?"}]

    def cached(client: httpx.Client) -> int:
        answer = client.post(CHAT, json=secret | {"messages": said_more})
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached(beta) == 0
    assert cached(alpha) > 50


def test_a_key_has_so_many_sessions(alpha, beta):
    first = alpha.post("/v1/sessions").json()["id"]
    assert alpha.post(f"/v1/sessions/{first}/fork", json={"n": 3}).status_code == 200
    for answer in (alpha.post("/v1/sessions"), alpha.post(f"/v1/sessions/{first}/fork")):
        assert error(answer, 429)["code"] == "too_many_sessions"
        assert int(answer.headers["retry-after"]) > 0
    assert beta.delete(f"/v1/sessions/{beta.post('/v1/sessions').json()['id']}").status_code == 200
    for session in alpha.get("/v1/sessions").json()["data"]:
        assert alpha.delete(f"/v1/sessions/{session['id']}").status_code == 200


def test_a_strict_server_takes_no_unknown_fields(alpha):
    assert error(alpha.post(CHAT, json=hello(colour=1)), 400)["param"] == "colour"


# ---- sizes ----


def test_a_body_that_is_too_large_is_refused(alpha):
    content = json.dumps(hello("a" * 100_000)).encode()

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(content), 10_000):
            yield content[start : start + 10_000]

    headers = {"content-type": "application/json"}
    for body in (content, pieces()):  # with its length told, and without
        found = error(alpha.post(CHAT, content=body, headers=headers), 413)
        assert found["param"] == "body"
        assert "100,000" in found["message"]
    assert alpha.get("/v1/models").status_code == 200


def picture(size: tuple[int, int] = (32, 32), noise: bool = False) -> str:
    image = Image.effect_noise(size, 100).convert("RGB") if noise else Image.new("RGB", size)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def look(client: httpx.Client, *urls: str) -> httpx.Response:
    return client.post(CHAT, json=hello([{"type": "image_url", "image_url": {"url": url}} for url in urls]))


def test_images_have_limits(alpha):
    assert look(alpha, picture(), picture()).status_code == 200
    assert error(look(alpha, picture(), picture(), picture()), 400)["code"] == "too_many_images"
    many_pixels = error(look(alpha, picture((400, 400))), 400)
    many_bytes = error(look(alpha, picture(), picture((150, 150), noise=True)), 400)
    assert "100,000" in many_pixels["message"] or "100000" in many_pixels["message"]
    assert "20,000" in many_bytes["message"]
    assert many_pixels["param"] == "messages.0.content.0.image_url.url"
    assert many_bytes["param"] == "messages.0.content.1.image_url.url"


# ---- at once ----


def test_too_much_at_once_is_told_to_come_back(strict, alpha, beta):
    with ExitStack() as stack:
        for client in (alpha, alpha, beta):
            stream = stack.enter_context(client.stream("POST", CHAT, json=long()))
            assert stream.status_code == 200
        assert strict.state.admission.total == 3
        for client, reason in ((alpha, "as many as this server takes"), (beta, "as many as this server takes")):
            answer = client.post(CHAT, json=hello())
            assert reason in error(answer, 429)["message"]
            assert answer.headers["retry-after"] == "1"
    until(lambda: strict.state.admission.total == 0)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(alpha.stream("POST", CHAT, json=long()))
        refused = alpha.post(CHAT, json=hello())
        assert "your key has 2 turns" in error(refused, 429)["message"]
        assert "retry-after" in refused.headers
        assert beta.post(CHAT, json=hello()).status_code == 200
        assert error(alpha.post(CHAT, json=hello(n=3)), 429)
    until(lambda: strict.state.admission.total == 0)
    assert alpha.post(CHAT, json=hello()).status_code == 200


def test_a_turn_that_takes_too_long_ends(hasty):
    with hasty.client() as client:
        session = client.post("/v1/sessions").json()["id"]
        whole = client.post(CHAT, json=long() | {"stream": False, "session_id": session})
        assert error(whole, 504)["code"] == "timeout"
        streamed: list[str] = []

        def has_begun() -> bool:
            """On a busy machine the time may be over before a stream begins: then the answer is the error alone."""
            streamed[:] = client.post(CHAT, json=long()).text.split("\n\n")
            return len(streamed) > 2

        until(has_begun)
        assert json.loads(streamed[-3].removeprefix("data: "))["error"]["code"] == "timeout"
        assert streamed[-2] == "data: [DONE]"
        assert hasty.state.admission.total == 0
        until(lambda: not client.get(f"/v1/sessions/{session}").json()["busy"])
        assert client.get(f"/v1/sessions/{session}").json()["turns"] == []  # so that it can be asked again
        until(lambda: client.post(CHAT, json=hello(session_id=session)).status_code == 200)
        until(lambda: hasty.state.client.stats.values["running"] == 0)


def test_an_unused_session_is_closed_in_the_engine_too(alpha, strict):
    session = alpha.post("/v1/sessions", json={"ttl": 2.0}).json()["id"]
    assert alpha.post(f"/v1/sessions/{session}/turns", json=hello()).status_code == 200
    assert alpha.get(f"/v1/sessions/{session}").json()["expires_in"] <= 2.0
    until(lambda: alpha.get(f"/v1/sessions/{session}").status_code == 404)

    def ask_the_engine() -> Any:
        call = strict.state.client.call("describe", session)
        return asyncio.run_coroutine_threadsafe(call, strict.loop).result(60)

    with pytest.raises(EngineRefused, match="no session"):
        until(lambda: not ask_the_engine())


# ---- from outside ----


def test_other_origins_are_let_in_only_where_told(http, hasty):
    headers = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    for answer in (http.get("/health", headers=headers), http.options(CHAT, headers=headers)):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    with hasty.client() as client:
        assert client.options(CHAT, headers=headers).headers["access-control-allow-origin"] == "https://a.example"
        for path in ("/health", "/v1/sessions/none"):
            assert client.get(path, headers=headers).headers["access-control-allow-origin"] == "https://a.example"
        other = client.get("/health", headers={"Origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_nothing_is_open_by_default():
    settings = ServerSettings()
    assert settings.host == "127.0.0.1"
    assert settings.admin_key is None
    assert settings.image_hosts == settings.cors_origins == ()


def test_images_are_not_fetched_unless_allowed(http, hasty, pictures):
    port, seen = pictures
    off = error(look(http, f"http://127.0.0.1:{port}/a.png"), 400)
    assert "--image-host" in off["message"]
    with hasty.client() as client:
        for url, reason in (
            (f"http://127.0.0.1:{port}/a.png", "not public"),
            (f"http://localhost:{port}/a.png", "not public"),
            ("http://169.254.169.254/latest/meta-data", "not among"),
            ("http://example.com/a.png", "not among"),
            ("file:///etc/passwd", "http:// or https://"),
        ):
            found = error(look(client, url), 400)
            assert reason in found["message"]
            assert found["param"] == "messages.0.content.0.image_url.url"
    assert seen == []


# ---- what is told to whom ----


def test_logs_hold_no_content(alpha, beta, caplog):
    tool = {"type": "function", "function": {"name": MARK, "description": MARK}}
    with caplog.at_level(logging.DEBUG):
        answer = alpha.post(CHAT, json=hello(MARK, tools=[tool], stop=[MARK], user=MARK))
        assert answer.status_code == 200
        assert alpha.post(CHAT, json=hello(MARK, stream=True)).status_code == 200
        said = answer.json()["choices"][0]["message"]["content"]
        session = alpha.post("/v1/sessions").json()["id"]
        for path, body in (
            ("/v1/completions", {"prompt": MARK}),
            ("/tokenize", {"prompt": MARK}),
            (f"/v1/sessions/{session}/turns", hello(MARK)),
            (CHAT, hello(MARK, temperature=MARK)),
            (CHAT, hello([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{MARK}"}}])),
            (CHAT, hello(MARK, structured_outputs={"regex": f"({MARK}"})),
            (CHAT, hello(MARK, model=MARK)),
            (f"/v1/sessions/{MARK}/turns", hello(MARK)),
        ):
            alpha.post(path, json=body)
        assert alpha.delete(f"/v1/sessions/{session}").status_code == 200
        beta.get("/v1/models", headers={"Authorization": f"Bearer {MARK}"})
    # The requests' own lines and errors; `holotron serve` has no others.
    records = [record for record in caplog.records if record.name.startswith(("holotron", "uvicorn.error", "asyncio"))]
    lines = [JsonLines().format(record) for record in records]
    assert len(lines) >= 12
    for line in lines:
        assert MARK not in line
        assert "alpha" not in line
        if len(said) > 3:
            assert said not in line
    turns = [json.loads(line) for line in lines if "completion_tokens" in line]
    assert turns[0].keys() >= {"id", "method", "route", "status", "seconds", "caller", "prompt_tokens", "cached_tokens"}
    assert turns[0]["caller"].startswith("key-")
    assert turns[0]["id"] == answer.headers["x-request-id"]


def test_metrics_move(alpha, strict):
    def figures() -> dict[str, float]:
        lines = [line for line in alpha.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def total(found: dict[str, float], name: str) -> float:
        return sum(value for key, value in found.items() if key.split("{")[0] == name)

    before = figures()
    usage = alpha.post(CHAT, json=hello(ignore_eos=True)).json()["usage"]
    alpha.post(CHAT, json=hello(temperature=-1))
    after = figures()
    for name, grown in {
        "vllm:prompt_tokens_total": usage["prompt_tokens"],
        "vllm:generation_tokens_total": 4,
        "vllm:request_success_total": 1,
        "vllm:time_to_first_token_seconds_count": 1,
        "vllm:inter_token_latency_seconds_count": 3,
        "vllm:e2e_request_latency_seconds_count": 1,
        "holotron:http_requests_total": 3,  # and the figures themselves
    }.items():
        assert total(after, name) - total(before, name) == grown, name
    for name in (
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_queries_total",
        "holotron:state_usage",
        "holotron:sessions",
        "holotron:turns_refused_total",
        "holotron:engine_restarts_total",
        "holotron:computed_tokens_total",
    ):
        assert any(key.split("{")[0] == name for key in after), name
    assert f'holotron:http_requests_total{{path="{CHAT}",status="400"}}' in after
    computed = total(after, "holotron:computed_tokens_total")
    alpha.post(CHAT, json=hello("Something that was never said before."))
    until(lambda: total(figures(), "holotron:computed_tokens_total") > computed)
