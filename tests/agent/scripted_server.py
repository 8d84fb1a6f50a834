"""An OpenAI-compatible server whose model says what it was told to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ScriptedAnswer = str | dict[str, Any] | Callable[[dict[str, Any]], str | dict[str, Any]]


@dataclass
class ScriptedServer:
    """Answers in order, the last one again and again. requests: what was asked.

    A function is asked for its answer to each request: a text, or a whole choice. It may be called by several threads.
    """

    url: str
    answers: list[ScriptedAnswer]
    card: dict[str, Any] = field(default_factory=dict)
    requests: list[dict[str, Any]] = field(default_factory=list)

    def next_choice(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            found = answer(request)
            return found if isinstance(found, dict) else {"message": {"role": "assistant", "content": found}}
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return {"message": {"role": "assistant", "content": text}}


@contextmanager
def scripted_server(*answers: ScriptedAnswer, **card: Any) -> Iterator[ScriptedServer]:
    """card: what /v1/models says besides the name, such as policy_format."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open, as with real servers

        def do_GET(self) -> None:
            self._answer(200 if self.path == "/v1/models" else 404, {"data": [{"id": "scripted"} | server.card]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append(request)
            choice = {"index": 0, "finish_reason": "stop"} | server.next_choice(request)
            usage = {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 600}}
            self._answer(200, {"choices": [choice], "usage": usage})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = ScriptedServer(f"http://127.0.0.1:{http.server_address[1]}/v1", list(answers), card)
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield server
        http.shutdown()
