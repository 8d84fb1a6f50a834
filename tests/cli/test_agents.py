"""`holotron run`, `rollout`, `stop` as a person types them: real browser, real (tiny) model, real episodes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from holotron.agent import open_model
from holotron.agent.chat import ChatOptions
from holotron.cli.main import app
from holotron.cli.policies import Chosen, opened
from holotron.episodes.fleet import Fleet
from holotron.episodes.store import EpisodeStore
from tests.env.driver import descendants
from tests.env.site import Site
from tests.suites.miniwob_driver import needs_chromium
from tests.tiny_checkpoint import write_checkpoint

pytestmark = needs_chromium
PAGE = "<title>A page</title><h1>Hello</h1><button>One</button><input>"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(write_checkpoint(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(autouse=True)
def nobody_elses(monkeypatch, tmp_path_factory):
    """`holotron stop` ends whatever is registered here, which must not be what others run at the same time."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("running")))


@pytest.fixture
def site():
    with Site({"/": PAGE, "/other": PAGE}) as site:
        yield site


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "holotron.cli.main", *map(str, words)]


def holo(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=120)


def run_words(site: Site, checkpoint: str, *more: object) -> list[object]:
    words = ["run", "Look around", "--url", site.origin + "/", "--model", checkpoint, "--size", "320x200", "--bare"]
    return [*words, "--max-tokens", 60, "--temperature", 1, *more]


def test_a_run_is_told_and_recorded(site, checkpoint, tmp_path):
    # At temperature 0, lest it draws a long wait.
    done = holo(*run_words(site, checkpoint, "--steps", 3, "--record", tmp_path / "kept", "--temperature", 0))
    assert done.returncode in (0, 1), done.stderr
    assert "steps," in done.stderr
    assert "holotron view" in done.stderr
    store = EpisodeStore(tmp_path / "kept")
    (info,) = store.list_episodes()
    assert info.finished
    steps = store.read(info.id).steps
    assert 1 <= len(steps) <= 3
    assert steps[0].observation.title == "A page"
    assert store.image(steps[0].observation.image)[:4] == b"\x89PNG"
    assert steps[0].output.prompt_ids
    assert steps[0].output.token_ids
    assert len(steps[0].output.forced) == len(steps[0].output.token_ids)
    assert info.policy.extra["format"] == "json-bare"


class Patient(BaseHTTPRequestHandler):
    """A model that never ends a run by itself: it waits."""

    protocol_version = "HTTP/1.1"  # connections stay open, as with real servers

    def do_GET(self) -> None:
        self._answer(200 if self.path == "/v1/models" else 404, {"data": [{"id": "patient"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": '{"action":"wait","seconds":0.2}'}
        self._answer(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def model_server(kind: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def patient():
    with model_server(Patient) as address:
        yield address


@pytest.mark.parametrize("how", ["ctrl-c", "stop"])
def test_stopping_is_clean(site, patient, tmp_path, how):
    words = ["run", "Look around", "--url", site.origin + "/", "--endpoint", patient, "--size", "320x200", "--bare"]
    words += ["--steps", 1000, "--record", tmp_path / "kept", "--keep-going"]
    process = subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    store = EpisodeStore(tmp_path / "kept")
    while not (tmp_path / "kept").exists() or not any(
        len(list(store.steps(info.id, salvage=True))) > 1 for info in store.list_episodes()
    ):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    below = descendants(process.pid)
    assert below
    if how == "stop":
        told = holo("stop")
        assert f"run {process.pid}: ended" in told.stdout
    else:
        process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert "Traceback" not in process.stderr.read()
    (info,) = store.list_episodes()
    assert info.outcome.reason == "stopped"
    left = [pid for pid in below if Path(f"/proc/{pid}").exists() and "chrom" in _name(pid)]
    assert left == []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_a_rollout_goes_on_where_it_was(site, checkpoint, tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    lines = [{"task": "Look", "url": site.origin + "/"}, {"task": "Look again", "url": site.origin + "/other"}]
    tasks.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["rollout", tasks, "--out", tmp_path / "kept", "--model", checkpoint, "--sessions", 3, "--group", 2]
    words += ["--steps", 1, "--bare", "--max-tokens", 20, "--width", 320, "--height", 200, "--json"]
    first = holo(*words)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["finished"] == 4
    weights = Path(checkpoint) / "model.safetensors"
    weights.rename(tmp_path / "away")  # with nothing left to play it is not loaded
    try:
        again = json.loads(CliRunner().invoke(app, list(map(str, words))).stdout)
    finally:
        (tmp_path / "away").rename(weights)
    assert (again["finished"], again["skipped"]) == (0, 4)
    samples = sorted((info.task.text, info.task.sample) for info in EpisodeStore(tmp_path / "kept").list_episodes())
    assert samples == [("Look", 0), ("Look", 1), ("Look again", 0), ("Look again", 1)]


def test_an_endpoint_is_evaluated_by_workers(patient, tmp_path):
    words = ["eval", "miniwob", "--endpoint", patient, "--tasks", "click-test,click-link", "--seeds", "1", "--bare"]
    done = holo(*words, "--workers", 2, "--sessions", 4, "--out", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    assert (report["episodes"], report["success_rate"]) == (2, 0)
    assert report["protocols"]["browsergym-125"]["episodes"] == 2
    assert {info.step_count for info in EpisodeStore(tmp_path).list_episodes()} == {10}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "x", "--url", "http://localhost", "--random"], "--model"),
        (["run", "x", "--url", "ftp://localhost", "--endpoint", "http://127.0.0.1:9"], "http"),
        (["run", "x", "--url", "http://localhost", "--endpoint", "http://127.0.0.1:9", "--size", "big"], "--size"),
        (["run", "x", "--url", "http://localhost", "--endpoint", "e", "--model", "m"], "--endpoint"),
        (
            ["run", "x", "--url", "http://localhost", "--format", "holo"],
            "no policy format 'holo'; choose one of nano, json",
        ),
        (["rollout", "/nowhere.jsonl", "--out", "x", "--endpoint", "http://127.0.0.1:9"], "/nowhere.jsonl"),
        (["eval", "miniwob", "--protocol", "nonsense", "--baseline", "random"], "nonsense"),
        (["eval", "miniwob", "--tasks", "click-nothing", "--baseline", "random"], "click-nothing"),
        (["eval", "miniwob", "--seeds", "a,b", "--baseline", "random"], "--seeds"),
        (["eval", "miniwob", "--baseline", "best"], "--baseline"),
        (["eval", "miniwob", "--random"], "--model"),
        (["train", "sft", "/nowhere.toml", "--out", "x"], "/nowhere.toml"),
        (["run", " ", "--url", "http://127.0.0.1:9"], "TASK is empty"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert done.exit_code in (1, 2)
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "complaints"),
    [(b'{"task": "a", "url": "http://x"}\n{"task": "b"}\n', ("line 2", "url")), (b"\xff\n", ("tasks.jsonl", "UTF-8"))],
)
def test_a_broken_list_of_tasks_is_named_by_line(tmp_path, text, complaints):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_bytes(text)
    words = ["rollout", tasks, "--out", tmp_path / "kept", "--endpoint", "http://127.0.0.1:9"]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 2
    assert all(complaint in done.stderr for complaint in complaints)


def test_a_page_that_is_not_there_is_told_in_a_line(checkpoint, site):
    gone = site.origin.rsplit(":", 1)[0] + ":9"
    done = CliRunner().invoke(app, ["run", "x", "--url", gone, "--model", checkpoint, "--size", "320x200"])
    assert done.exit_code == 1
    assert ":9" in done.stderr
    assert "a bug" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["run", "x", "--url", "http://localhost:1"],
        ["rollout", "tasks.jsonl", "--out", "out"],
        ["eval", "miniwob", "--tasks", "click-test"],
        ["eval", "recall"],
        ["demo"],
    ],
)
def test_a_server_that_is_not_there_is_told_at_once(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text('{"task": "x", "url": "http://localhost:1"}\n')
    done = CliRunner().invoke(app, [*words, "--endpoint", "http://127.0.0.1:9"])
    assert done.exit_code == 1
    assert "error: http://127.0.0.1:9 cannot be reached" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


class Failing(Patient):
    """A server that says what it serves, and can do nothing else."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(500, {"error": {"message": "out of memory"}})


def test_a_rollout_that_lost_everything_fails_and_says_why(site, tmp_path, monkeypatch):
    monkeypatch.setattr("holotron.suites.play.Fleet", partial(Fleet, pause=0.0))
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"task": "Look", "url": site.origin + "/"}) + "\n")
    with model_server(Failing) as address:
        words = ["rollout", tmp_path / "tasks.jsonl", "--out", tmp_path / "kept", "--endpoint", address]
        done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 1
    assert "no episode could be played" in done.stderr
    assert "out of memory" in done.stderr


class Named(Patient):
    """A server of a small policy: it tells how that is asked. The policy never answers before it must."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        stated = {"format": "nano", "size": [640, 480]}
        self._answer(200 if self.path == "/v1/models" else 404, {"data": [{"id": "small", "policy_format": stated}]})

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        kind = "answer" if "wait" not in json.dumps(self.asked[-1]["response_format"]) else "wait"
        text = '{"action":"answer","text":"late"}' if kind == "answer" else '{"action":"wait","seconds":0.1}'
        message = {"role": "assistant", "content": text}
        self._answer(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})


def test_an_endpoint_says_how_its_policy_is_asked(site, tmp_path):
    """The format and the view reach `run` and `rollout`; a run out of steps is no success."""
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"task": "Look", "url": site.origin + "/"}) + "\n")
    with model_server(Named) as address:
        kept = tmp_path / "run"
        words = ["run", "Look", "--url", site.origin + "/", "--endpoint", address, "--steps", 2, "--record", kept]
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 1
        assert "step_limit after 2 steps" in done.stderr
        assert done.stdout == "late\n"
        many = ["rollout", tmp_path / "tasks.jsonl", "--out", tmp_path / "many", "--endpoint", address, "--steps", 1]
        assert CliRunner().invoke(app, list(map(str, many))).exit_code == 0
    assert Named.asked[0]["messages"][0]["content"][1]["text"] == "Task: Look"
    for folder in (kept, tmp_path / "many"):
        (info,) = EpisodeStore(folder).list_episodes()
        assert info.outcome.reason == "step_limit"
        assert info.policy.extra["format"] == "nano"
        assert info.environment.viewport == (640, 480)


def test_a_rollout_says_why_an_episode_was_lost(site, tmp_path, monkeypatch):
    """At once, also where no terminal shows a bar; what nobody judged is not told as unsolved."""
    monkeypatch.setattr("holotron.suites.play.Fleet", partial(Fleet, pause=0.0))
    monkeypatch.setattr("holotron.cli.progress.SECONDS", 0.0)
    with model_server(Named) as address:
        with model_server(Named) as down:
            pass
        tasks = [{"task": "Look", "url": site.origin + "/"}, {"task": "Look", "url": down + "/"}]
        (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
        words = ["rollout", tmp_path / "tasks.jsonl", "--out", tmp_path / "kept", "--endpoint", address, "--json"]
        done = CliRunner().invoke(app, list(map(str, [*words, "--steps", 2])))
    assert done.exit_code == 0
    nobody = f"{down}/ could not be loaded: nothing listens at {down.removeprefix('http://')}"
    assert done.stderr.count(f"lost to the infrastructure: {nobody}\n") == 1
    assert re.search(r"rollout: 0 of 2, \d running, ", done.stderr)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("rollout: 2 of 2, ")
    assert last.endswith(" steps/s, 3 retried, 1 lost")
    counts = json.loads(done.stdout)
    assert (counts["finished"], counts["judged"], counts["infrastructure"]) == (1, 0, 1)
    assert counts["problem"] == nobody
    assert "first_step" not in counts  # by a clock that says nothing to others


def test_nothing_to_stop():
    assert holo("stop").stdout.strip() == "nothing is running"


def test_ctrl_c_is_heard_while_a_model_is_loaded(monkeypatch):
    """Nothing awaits there, and an event loop alone would keep the interrupt until the model is there."""
    reached = []

    @contextmanager
    def loading(*_):
        reached.append("begun")
        signal.raise_signal(signal.SIGINT)
        reached.append("loaded")
        yield

    async def load() -> None:
        async with opened(Chosen(None, False, None, None), ChatOptions()):
            reached.append("acting")

    monkeypatch.setattr(open_model, "warmed_model", loading)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # programs in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(load())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached == ["begun"]
