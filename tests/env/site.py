"""Web sites for tests: each on a port of its own, so each an origin of its own, and each counts who comes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

# What a site answers: a page, or a status with headers and a page.
Answer = str | bytes | tuple[int, dict[str, str], str | bytes]
# Makes the one control of a page easy to hit: it is at the top left.
BIG = "<style>body { margin: 0 } button, a, input, select { font-size: 40px; position: absolute; left: 0; top: 0;"
BIG += " width: 300px; height: 80px }</style>"


class Site:
    """A web server in a thread. `pages` maps paths to answers or to functions that make them."""

    def __init__(self, pages: dict[str, Answer | Callable[[], Answer]] | None = None, host: str = "127.0.0.1") -> None:
        self.pages = pages or {}
        self.host = host
        self.hits: list[str] = []
        self.bodies: list[bytes] = []
        self.headers: dict[str, str] = {}  # of the last request
        self.connections = 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                site.connections += 1
                super().setup()

            def do_GET(self) -> None:
                site.hits.append(self.path)
                site.headers = {name.lower(): value for name, value in self.headers.items()}
                site.bodies.append(self.rfile.read(int(self.headers.get("content-length") or 0)))
                answer = site.pages.get(urlsplit(self.path).path)
                if callable(answer):
                    answer = answer()
                if answer is None:
                    answer = (404, {}, "nothing here")
                status, headers, body = answer if isinstance(answer, tuple) else (200, {}, answer)
                data = body.encode() if isinstance(body, str) else body
                self.send_response(status)
                for name, value in {"content-type": "text/html; charset=utf-8", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_HEAD = do_OPTIONS = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # browsers leave when they like

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def origin(self) -> str:
        return f"http://{self.host}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class Datagrams:
    """A port that counts the datagrams sent to it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def count(self) -> int:
        count = 0
        while True:
            try:
                self._socket.recv(65536)
            except BlockingIOError:
                return count
            count += 1

    def close(self) -> None:
        self._socket.close()


def slowly(seconds: float, answer: Answer) -> Callable[[], Answer]:
    """An answer that takes its time."""

    def make() -> Answer:
        time.sleep(seconds)
        return answer

    return make


def redirect(url: str) -> Answer:
    return (302, {"location": url}, "")
