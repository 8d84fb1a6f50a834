"""`make test-docs`: every shell block of README and docs is run, in scratch folders, with the bundled weights on a CPU.

Comments before a block say what cannot be run here, or only smaller:

    <!-- test-docs: skip holotron bench agent: a GPU -->
    <!-- test-docs: run --episodes 1000 as --episodes 4 -->
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from examples.pages import site

from holotron.model.loading import find_checkpoint

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"((?:^<!-- test-docs: [^\n]* -->\n)*)^```(sh|bash|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- test-docs: (skip|run) (.*?)(?:: | as )(.*) -->")
ELSEWHERE = {
    "docs/server.md": "tests/server/test_docs_server.py",  # with every test run
    "docs/scale.md": "tests/scale/docs_page.py",  # on a cluster
}
SERVER = "http://127.0.0.1:8000"
LASTING = ("holotron serve", "holotron view")  # until they are interrupted
SECONDS = 1800
TASKS = '{{"task": "Log in as ada with password x", "url": "{site}/login", "success": "document.title == \'Hello\'"}}\n'
PRICES = '["*"]\ninput = 0.5\ncached = 0.05\noutput = 2.0\n'


@dataclass(frozen=True)
class Shown:
    """A command as a page shows it. ran: as it is run. skipped: why it is not."""

    page: str
    line: int
    command: str
    ran: str
    skipped: str = ""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def shown(pages: Sequence[str] = ()) -> Iterator[Shown]:
    """The commands of these pages; without any, of all that are not run elsewhere."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in [ROOT / page for page in pages] or [
        path for path in found if str(path.relative_to(ROOT)) not in ELSEWHERE
    ]:
        page, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            marks = MARK.findall(block[1])
            first = text[: block.start(3)].count("\n") + 1
            for offset, line in enumerate(block[3].replace("\\\n", "").splitlines()):
                if block[2] == "console" and not line.startswith("$ "):
                    continue
                command = line.removeprefix("$ ").partition("  #")[0].partition(" # ")[0].strip()
                if not command:
                    continue
                ran, reason = command, ""
                for kind, what, other in marks:
                    if kind == "skip" and command.startswith(what):
                        reason = other
                    elif kind == "run":
                        ran = ran.replace(what, other)
                yield Shown(page, first + offset, command, ran, reason)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.docs_run", description=__doc__)
    parser.add_argument("--only", default="", help="pages whose path contains this; the report keeps the others")
    parser.add_argument("--out", type=Path, help="where the report goes; without it, to standard output")
    arguments = parser.parse_args()
    done = {} if arguments.out is None else _kept(arguments.out)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        root = Path(name)
        environment = _environment(root)
        address = stack.enter_context(site())
        places = {"https://example.com": address, "http://localhost:3000": f"{address}/login"}
        for one in shown():
            if arguments.only not in one.page:
                continue
            if SERVER in one.ran and not one.skipped and SERVER not in places:
                places[SERVER] = stack.enter_context(_served(root, environment))
            done[one.place] = _tried(one, root, environment, places)
            _report(done, arguments.out)
    sys.exit(any(one.get("ok") is False for one in done.values()))


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    """What an earlier report says of commands that are still shown, wherever on their page."""
    before = json.loads(path.read_text(encoding="utf-8"))["commands"] if path.is_file() else []
    known = {(one["at"].partition(":")[0], one["command"]): one for one in before}
    return {
        one.place: known[one.page, one.command] | {"at": one.place}
        for one in shown()
        if (one.page, one.command) in known
    }


def _report(done: Mapping[str, dict[str, Any]], out: Path | None) -> None:
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": "make test-docs",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "instead": {
            "https://example.com, http://localhost:3000": "a small site on this machine",
            SERVER: "holotron serve holotron-nano, on another port",
            "./checkpoint": "the bundled weights",
            **{f"blocks of {page}": program for page, program in ELSEWHERE.items()},
        },
        "ran": sum("ok" in one for one in done.values()),
        "failed": sum(one.get("ok") is False for one in done.values()),
        "skipped": sum("skipped" in one for one in done.values()),
        "commands": list(done.values()),
    }
    text = json.dumps(report, indent=1, ensure_ascii=False) + "\n"
    if out is not None:
        out.write_text(text, encoding="utf-8")
    else:
        print(text)


def _environment(root: Path) -> dict[str, str]:
    """`holotron` and `python` are those that run this; `holotron stop` sees what was begun here alone."""
    programs = root / "bin"
    programs.mkdir()
    for name, words in {"holotron": "-m holotron.cli.main", "python": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (programs / name).chmod(0o755)
    given = {"PATH": f"{programs}:{os.environ['PATH']}", "XDG_RUNTIME_DIR": str(root), "BROWSER": "true"}
    return os.environ | given


@contextmanager
def _served(root: Path, environment: Mapping[str, str]) -> Iterator[str]:
    process, log = _begin("holotron serve holotron-nano --port 0 --device cpu", root, environment)
    try:
        yield _address(process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _begin(command: str, folder: Path, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], Path]:
    log = folder / "lasting.log"
    with log.open("wb") as out:
        words = ["bash", "-c", f"exec {command}"]
        return subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=out), log


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it serves, once it says so and answers."""
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace")):
            with suppress(urllib.error.HTTPError):  # a server without episodes has no page, and says so
                urllib.request.urlopen(found[0], timeout=60).close()
            return found[0]
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-2000:])


def _tried(one: Shown, root: Path, environment: Mapping[str, str], places: Mapping[str, str]) -> dict[str, Any]:
    result: dict[str, Any] = {"at": one.place, "command": one.command}
    if one.skipped:
        return result | {"skipped": one.skipped}
    folder = _scratch(root / one.page.replace("/", "-"), places)
    ran = one.ran
    for shown_place, real in places.items():
        ran = ran.replace(shown_place, real)
    ran = ran.replace("ORIGIN", places["https://example.com"])
    if "EPISODE" in ran:
        ran = ran.replace("EPISODE", min(path.name for path in (folder / "episodes" / "episodes").iterdir()))
    print(f"{result['at']}: {ran}", file=sys.stderr, flush=True)
    began = time.monotonic()
    if ran.startswith(LASTING):
        process, log = _begin(f"{ran} --port 0", folder, environment)
        try:
            _address(process, log)
            process.send_signal(signal.SIGINT)
            code, said = process.wait(60), log.read_text(errors="replace")
        except (AssertionError, OSError) as error:
            process.kill()
            code, said = -1, str(error)
        fine = code in (0, 130)
    else:
        done = subprocess.run(
            ["bash", "-c", ran], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        code, said = done.returncode, done.stdout + done.stderr
        # A small policy need not reach the goal; that it did not is told and is exit code 1.
        tried = ran.startswith("holotron run") and re.search(r"^\w+ after \d+ steps", said, re.MULTILINE)
        fine = code == 0 or (code == 1 and tried)
    ok = bool(fine) and "Traceback" not in said
    result |= {"exit": code, "seconds": round(time.monotonic() - began, 1), "ok": ok}
    if one.ran != one.command:
        result["ran"] = one.ran
    if not ok:
        result["said"] = said[-2000:]
        print(said[-2000:], file=sys.stderr)
    return result


def _scratch(folder: Path, places: Mapping[str, str]) -> Path:
    """One page's folder, with the files that its commands read."""
    if not folder.is_dir():
        folder.mkdir()
        (folder / "checkpoint").symlink_to(find_checkpoint("holotron-nano"))
        (folder / "pw.txt").write_text("x")
        (folder / "prices.toml").write_text(PRICES)
        (folder / "tasks.jsonl").write_text(TASKS.format(site=places["https://example.com"]))
        for name in ("recipes", "pipelines"):
            shutil.copytree(ROOT / name, folder / name)
    return folder


if __name__ == "__main__":
    main()
