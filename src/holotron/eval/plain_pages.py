"""Three small pages written by hand, each with a task and a rule that tells success."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(__file__).with_name("plain_pages")


@dataclass(frozen=True)
class PlainPage:
    """`success` is a JavaScript expression that is true once the task is done."""

    name: str
    task: str
    success: str


def plain_pages() -> list[PlainPage]:
    return [
        PlainPage(path.stem, **json.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.json"))
    ]


@contextmanager
def served(folder: Path = FOLDER) -> Iterator[str]:
    """The files of a folder on this machine's own address, until the end of the block."""
    with _Server(("127.0.0.1", 0), partial(_Silent, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Browsers close connections when they like, which is no error here."""


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Requests for a few files are not worth a line each."""
