"""What an application is here: how it is started, what is to be done in it, and how one sees that it was done."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Do:
    """One action. at: a selector of what it is aimed at. drawn: or a text that an open list or calendar shows.

    right: at the right end of what the selector finds, where a date field has its icon. read: a selector of what is
    given as the text.
    """

    action: str
    at: str = ""
    drawn: str = ""
    right: bool = False
    read: str = ""
    fields: Mapping[str, Any] | None = None


def write(at: str, text: str, **more: Any) -> Do:
    return Do("type", at, fields={"text": text, "clear": True, **more})


@dataclass(frozen=True)
class Application:
    """package: the distribution it is. start: where its task begins. secret: the name and the value of what logs in.

    command: what starts it, of a Python that has it, an empty folder and a port. ready: a path that answers then.
    state: what was made in it, from that folder and its origin; wanted: what it should be. told: words that a page's
    dialogs must have brought to the policy. learned: whether a model learns the script, too, which needs pages that
    look the same at each run.
    """

    package: str
    task: str
    start: str
    secret: tuple[str, str]
    script: Sequence[Do]
    command: Callable[[Path, Path, int], list[str]]
    ready: str
    state: Callable[[Path, str], Any]
    wanted: Callable[[], Any]
    told: Sequence[str] = ()
    learned: bool = False


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def served(application: Application, python: Path, folder: Path, port: int) -> Iterator[str]:
    """The application at work in a folder of its own, started by its own Python; its origin."""
    folder.mkdir(parents=True)
    log, origin = folder.with_suffix(".log"), f"http://127.0.0.1:{port}"
    words = application.command(python, folder, port)
    environment = os.environ | {"HOME": str(folder)}
    with (
        log.open("w") as out,
        subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        try:
            _wait_for(origin + application.ready, process, log)
            yield origin
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"{url} does not answer:\n{log.read_text()[-2000:]}")
