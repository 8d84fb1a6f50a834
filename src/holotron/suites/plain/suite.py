"""Small pages written by hand, as small sites have them, with tasks on each: PAGE/TASK. None is for training."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from holotron.agent.agent import Ending
from holotron.agent.formats.base import PAGE_KINDS
from holotron.env.browser.environment import BrowserEnv
from holotron.env.browser.pool import Browsers
from holotron.env.task import Task
from holotron.suites.suite import EvalProtocol, Suite
from holotron.suites.web import WebSuite

FOLDER = Path(__file__).with_name("pages")


@cache
def plain_tasks() -> dict[str, dict[str, str]]:
    """By name: the `task`, and `success`, a JavaScript expression that is true once it is done."""
    pages = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
    return {f"{page}/{name}": about for page, tasks in pages.items() for name, about in tasks.items()}


class PlainSuite(Suite[BrowserEnv]):
    """Each task in a browser context of its own, on a server of this machine."""

    name = "plain"
    kinds = PAGE_KINDS

    def names(self, split: str | None = None) -> tuple[str, ...]:
        return tuple(plain_tasks())

    def groups(self, name: str) -> tuple[str, ...]:
        return (name.partition("/")[0],)

    def protocols(self) -> tuple[EvalProtocol, ...]:
        return (EvalProtocol("plain", self.names(), 1, 15),)

    def task(self, name: str, seed: int) -> Task:
        return Task(text=plain_tasks()[name]["task"], benchmark=self.name, name=name, seed=seed)

    def pool(self, pages: int, browsers: int = 1) -> Browsers:
        return Browsers(browsers)

    @asynccontextmanager
    async def begin(self, pool: Browsers, task: Task) -> AsyncIterator[BrowserEnv]:
        page = (task.name or "").partition("/")[0]
        with served() as address:
            there = task.model_copy(update={"url": f"{address}/{page}.html"})
            async with WebSuite(*(self.view or ())).begin(pool, there) as env:
                yield env

    async def judge(self, env: BrowserEnv, task: Task, ending: Ending, rule: str) -> Ending:
        solved = bool(await env.evaluate(plain_tasks()[task.name or ""]["success"]))
        return replace(ending, success=solved, reward=float(solved))


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
