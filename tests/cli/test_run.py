"""`holotron run` with secrets, questions and strange pages, and `stop`: what is believed, told and printed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.cli.output import print_json
from holotron.cli.process_registry import _began, registered, stop
from holotron.cli.run import _agree
from holotron.cli.terminal import visible
from holotron.episodes.run import browser_options
from tests.env.site import BIG, Site
from tests.suites.miniwob_driver import needs_chromium

PASSWORD = "hunter2 & ü"
LOGIN = """<title>\x1b]0;evil\x07 Log in</title><style>* { margin: 0; font-size: 20px }
  button, input { position: absolute; left: 0; width: 300px; height: 60px }</style>
  <button style="top: 0" onclick="location = '/deleted'">Delete all</button>
  <form action=/in><input name=password style="top: 100px"></form>"""


@contextmanager
def scripted(*actions: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """A model at an address that does these things, one after the other; and what it was sent."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200 if self.path == "/v1/models" else 404, {"data": [{"id": "scripted"}]})

        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            message = {"role": "assistant", "content": json.dumps(actions[min(len(asked), len(actions)) - 1])}
            self.reply(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

        def reply(self, status: int, body: dict[str, Any]) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


@needs_chromium
def test_who_cannot_write_secrets_is_told() -> None:
    words = ["run", "log in", "--url", "http://127.0.0.1:1", "--secret", "password=x"]
    assert "does not write {{secret:NAME}}" in CliRunner().invoke(app, words).stderr
    assert "does not write" not in CliRunner().invoke(app, words[:-2]).stderr


@needs_chromium
def test_a_wrong_address_is_refused_before_anything_is_said() -> None:
    done = CliRunner().invoke(app, ["run", "log in", "--url", "ftp://x", "--secret", "password=x"])
    assert done.exit_code == 2
    assert done.stderr == "error: the url is 'ftp://x'; it must begin with http:// or https://\n"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "x", "--url", "http://127.0.0.1:1"],
        ["run", "x", "--url", "http://127.0.0.1:1", "--headed"],
        ["demo"],
        ["eval", "miniwob", "--tasks", "click-test"],
    ],
)
def test_a_missing_browser_is_told_before_anything_is_loaded(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.delenv("HOLOTRON_CHROMIUM", raising=False)
    monkeypatch.setattr("holotron.agent.open_model.loaded_model", None)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert ("playwright install" if "--headed" in words else "holotron.env.browser.install") in done.stderr
    assert not list(tmp_path.iterdir())


@needs_chromium
def test_a_login_by_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy is told the name and types it; the value is in no prompt, output or episode. No input means no."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "pw.txt").write_text(PASSWORD + "\n")
    delete = {"action": "click", "x": 100, "y": 50}
    write = {"action": "type", "text": "{{secret:password}}", "x": 100, "y": 400, "enter": True}
    answer = {"action": "answer", "text": f"in as {PASSWORD} \x1b[2J"}
    with Site({"/": LOGIN, "/in": "<title>welcome</title>"}) as site, scripted(delete, write, answer) as (url, asked):
        words = ["run", "log in as ada", "--url", f"127.0.0.1:{site.port}", "--endpoint", url, "--size", "500x320"]
        words += ["--secret", f"password=@{tmp_path / 'pw.txt'}", "--ask", "delete", "--record", str(tmp_path / "kept")]
        done = CliRunner().invoke(app, [*words, "--bare"], input="")
        assert done.exit_code == 0, done.output
        assert [hit.partition("?")[0] for hit in site.hits if "favicon" not in hit] == ["/", "/in"]
        assert "password=hunter2+%26+%C3%BC" in site.hits[-1]
        told = "there is a secret named 'password', which you never see: where it belongs, type {{secret:password}}"
        assert told in asked[0]
        assert f"only pages of {site.origin} get it" in asked[0]
    assert "no: there is nobody to ask" in done.stderr
    assert "click(50, 16): Delete all — go on? [y/N]" in done.stderr
    assert done.stdout == "in as {{secret:password}} \\u001b[2J\n"
    assert "\x1b" not in done.stderr
    kept = [path.read_bytes().decode("latin-1") for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert any("{{secret:password}}" in text for text in kept)
    for text in (*asked, done.output, *kept):
        assert "hunter2" not in text


@needs_chromium
def test_what_no_screen_shows_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    page = f"{BIG}<button onclick=\"for (const n of 'abcde') alert(n); location = '/file'\">Get it</button>"
    file = (200, {"content-type": "application/zip", "content-disposition": "attachment; filename=it.zip"}, "zip")
    click, answer = {"action": "click", "x": 100, "y": 50}, {"action": "answer", "text": "done"}
    with Site({"/": page, "/file": file}) as site, scripted(click, answer) as (url, _):
        done = CliRunner().invoke(app, ["run", "get it", "--url", site.origin, "--endpoint", url, "--bare"])
    told = " ".join(done.stderr.split())
    assert "an alert said 'a'" in told
    assert "and 3 more" in told


def test_answers_to_questions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for typed, agreed in (("y\n", True), ("what\nYes\n", True), ("n\n", False), ("\n", False), ("", False)):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert _agree("click: \x1b[31mPay\u202e") is agreed
    said = capsys.readouterr().err
    assert said.count("click: \\u001b[31mPay\\u202e [y/N] ") == 6
    assert said.endswith("no: there is nobody to ask, the input has ended\n")


def test_what_a_terminal_would_obey_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert visible("a\tb\nc \x1b]0;t\x07 \x9b1m \u202e é 世界") == "a\tb\nc \\u001b]0;t\\u0007 \\u009b1m \\u202e é 世界"
    value = {"a": "\x1b[1m \x9b \u202e"}
    print_json(value)
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed) == value


def options_for(url: str, **more: Any) -> tuple[str, Any]:
    return browser_options(url, (100, 100), **more)


def test_addresses_become_options() -> None:
    url, options = options_for("https://ada:p%40ss@bücher.example/a?b")
    assert url == "https://bücher.example/a?b"
    assert options.safety.refusal("https://xn--bcher-kva.example/") is None
    assert (options.login.username, options.secrets["url-password"].value) == ("ada", "p@ss")
    assert options.secrets["url-password"].may_enter("https://xn--bcher-kva.example")
    assert not options.secrets["url-password"].may_enter("https://example.com")
    url, options = options_for("http://token@example.com")
    assert (url, options.secrets["url-password"].value) == ("http://example.com", "token")
    url, options = options_for("example.com", allow_private=["example.com"])
    assert (url, options.login) == ("https://example.com", None)
    assert options.safety.refusal_of_address("example.com", 443, "10.0.0.1") is None
    assert options_for("localhost:3000")[0] == "http://localhost:3000"
    for wrong in ("ftp://example.com", "https://", "mailto:a@b.c", "http://[::1", "http://a:b:c/"):
        with pytest.raises(ValueError):  # noqa: PT011
            options_for(wrong)


# ---- stop ----


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A folder of what runs, and a process of ours that `holotron` never started."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        yield tmp_path / f"holotron-{os.getuid()}", other
        other.kill()


def entry(process: subprocess.Popen[bytes]) -> str:
    return json.dumps({"pid": process.pid, "what": "run", "began": _began(process.pid)})


def test_stop_ends_only_holotron(running: tuple[Path, subprocess.Popen[bytes]], capsys: Any) -> None:
    folder, other = running
    folder.mkdir(mode=0o700)
    (folder / "1.json").write_text(entry(other))
    stop()
    assert capsys.readouterr().out == "nothing is running\n"
    assert other.poll() is None


@pytest.mark.parametrize("how", ["open", "link", "another's"])
def test_stop_does_not_believe_others(
    running: tuple[Path, subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A folder that somebody else owns or may write to says nothing, and gets nothing."""
    folder, other = running
    if how == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777 if how == "open" else 0o700)
    if how == "another's":
        user = os.getuid() + 1
        folder = folder.rename(folder.with_name(f"holotron-{user}"))
        monkeypatch.setattr(os, "getuid", lambda: user)
    (folder / "1.json").write_text(entry(other).replace("run", "holotron"))
    with pytest.raises(OSError, match="not yours alone"):
        stop()
    with registered("run"):
        assert [path.name for path in folder.iterdir()] == ["1.json"]
    assert other.poll() is None
