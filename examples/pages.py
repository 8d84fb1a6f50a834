"""A small site for the examples, on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STYLE = (
    "<style>body{font:28px sans-serif;margin:40px}"
    "input,button{font:28px sans-serif;margin:12px 0;display:block}</style>"
)
PAGES = {
    "/": f"<title>Museum</title>{STYLE}<h1>Museum of Tides</h1><p>Open 9:00 to 17:00, closed on Mondays.</p>",
    "/login": f"<title>Log in</title>{STYLE}<form action=/hello><input name=user placeholder=user>"
    "<input name=word type=password placeholder=password><button>Log in</button></form>",
    "/hello": f"<title>Hello</title>{STYLE}<h1>You are logged in.</h1>",
    "/notes": f"<title>Notes</title>{STYLE}<h1>Notes</h1><button>Delete all notes</button>",
}


@contextmanager
def site() -> Iterator[str]:
    """The site's address, while it is served."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = PAGES.get(self.path.partition("?")[0], PAGES["/"]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def endpoint() -> str | None:
    """The server that the examples use, if one is named."""
    return os.environ.get("HOLOTRON_ENDPOINT")
