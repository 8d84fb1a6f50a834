"""Web applications as a suite, on a small one of our own, and what can go wrong with the code of others."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from holotron.agent.chat import Message, Reply
from holotron.agent.policy_format import BareJsonFormat
from holotron.cli.main import app as command_line
from holotron.episodes.store import EpisodeStore
from holotron.eval.evaluate import Evaluation, evaluate
from holotron.eval.html_report import write_html
from holotron.suites.suite import SuiteError, find_suite
from holotron.suites.webapps import server as servers
from holotron.suites.webapps.server import AppServer, ServerFailed
from holotron.suites.webapps.suite import WebAppsSuite
from holotron.suites.webapps.verifier import VerifierFailed, verify

ROOT = Path(__file__).parent
NOTES = ROOT / "apps" / "notes"
MILK, RENT = {"action": "click", "x": 105, "y": 112}, {"action": "click", "x": 105, "y": 212}
ADA = {"action": "type", "text": "call Ada", "x": 200, "y": 325, "enter": True}
ANSWER = {"action": "answer", "text": "done"}
SOLUTIONS = {
    "Mark 'Buy milk' as done.": [MILK, ANSWER],
    "Note that Ada is to be called.": [ADA, ANSWER],
    "Mark everything as done.": [MILK, RENT, ANSWER],
    "Tick 'Pay the rent'.": [RENT, ANSWER],
}
SECONDS = 60.0


class Scripted:
    """A model that knows by heart what each task wants."""

    name = "script"

    def __init__(self, actions: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self.actions = actions
        self.heard: list[str] = []

    async def open(self) -> _Script:
        return _Script(self)


class _Script:
    def __init__(self, model: Scripted) -> None:
        self._model, self._left = model, None

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        told = new[-1].text
        self._model.heard.append(told)
        if self._left is None:
            self._left = iter(next(script for task, script in self._model.actions.items() if task in told))
        return Reply(json.dumps(next(self._left)))

    async def close(self) -> None: ...


def changed(folder: Path, **files: str) -> Path:
    """The application with other contents of some files, as a root."""
    shutil.copytree(NOTES, folder / "notes")
    for name, text in files.items():
        (folder / "notes" / name.replace("__", "/")).write_text(text)
    return folder


# ---- which tasks there are ----


def test_tasks_of_a_folder() -> None:
    suite = find_suite("webapps", ROOT)
    assert suite.names("function") == ("notes/function/task_1",)
    assert suite.names("real") == ("notes/real/task_e1", "notes/real/task_m1", "notes/real/task_h1")
    assert suite.names() == WebAppsSuite(ROOT / "apps", ("notes",)).names()
    assert suite.groups("notes/real/task_h1") == ("hard", "notes")
    assert suite.groups("notes/function/task_1") == ("notes",)
    protocol = suite.find_protocol("infinity", split="real")
    assert (protocol.tasks, protocol.max_steps) == (suite.names("real"), 50)
    task = suite.task("notes/real/task_e1", 3)
    assert (task.text, task.key.task) == ("Mark 'Buy milk' as done.", "webapps/notes/real/task_e1")
    assert find_suite("webapps").taught() == ()


ENTRY = {"id": "a", "instruction": "Do it.", "verify": "real-tasks/task_e1.py"}
BAD = {
    "cannot be read": "[",
    "is no list of tasks": "{}",
    "entry 0: it is no object": "[1]",
    "entry 1: its 'instruction' is None": json.dumps([ENTRY, {"id": "b", "verify": "x"}]),
    "its 'difficulty' is 3": json.dumps([{**ENTRY, "difficulty": 3}]),
    r"its verifier '\.\./\.\./x\.py' is no file of the application": json.dumps([{**ENTRY, "verify": "../../x.py"}]),
    "its verifier 'none.py' is no file": json.dumps([{**ENTRY, "verify": "none.py"}]),
    "two tasks with the id 'a'": json.dumps([ENTRY, ENTRY]),
}


@pytest.mark.parametrize("complaint", BAD)
def test_task_files_that_cannot_be_used(tmp_path: Path, complaint: str) -> None:
    (tmp_path / "x.py").touch()
    suite = WebAppsSuite(changed(tmp_path / "apps", **{"real-tasks.json": BAD[complaint]}))
    with pytest.raises(SuiteError, match=complaint) as found:
        suite.names()
    assert "real-tasks.json" in str(found.value)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="needs a root"):
        WebAppsSuite().names()
    with pytest.raises(SuiteError, match="holds no applications"):
        WebAppsSuite(tmp_path).names()
    with pytest.raises(SuiteError, match=r"no application 'mail' in .*; there are notes"):
        WebAppsSuite(ROOT, ("mail",)).names()
    with pytest.raises(SuiteError, match=r"no task 'notes/real/task_e2'.*did you mean notes/real/task_e1"):
        WebAppsSuite(ROOT).find_protocol("infinity", ["notes/real/task_e2"])
    with pytest.raises(SuiteError, match="the suite pages has no root"):
        find_suite("pages", ROOT)
    for file in changed(tmp_path).glob("notes/*-tasks.json"):
        file.unlink()
    with pytest.raises(SuiteError, match=r"real-tasks\.json and function-tasks\.json are missing"):
        WebAppsSuite(tmp_path).names()


# ---- verifiers ----

FOUND = {  # what a verifier does, what is found
    "return True, 'fine'": (True, "fine"),
    "print('no'); sys.stdout.flush(); os.write(1, b'{}'); return False, 'it is not so'": (False, "it is not so"),
    "return {}['x'], ''": (False, "the verifier raised KeyError: 'x'"),
    "sys.exit(0)": (False, "the verifier raised SystemExit: 0"),
    "return bool(bytearray(4 << 30)), ''": (False, "the verifier raised MemoryError: "),
    "return True, ' '.join(sorted(os.environ)) + ' ' + str(os.listdir())": (
        True,
        "HOME LANG LC_CTYPE PATH PYTHONDONTWRITEBYTECODE PYTHONPATH []",
    ),
}
FAILED = {
    "return True": "it returned True instead of",
    "os._exit(7)": "ended with 7: it said nothing",
    "import urllib.request; urllib.request.urlopen(address)": "URLError",
}


def verifier(folder: Path, body: str, head: str = "import os, sys") -> Path:
    path = folder / "task.py"
    path.write_text(f"{head}\ndef verify(address):\n    {body}\n")
    return path


@pytest.mark.parametrize("body", FOUND)
def test_what_verifiers_find(tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    found = asyncio.run(verify(verifier(tmp_path, body), "http://127.0.0.1:9"))
    passed, message = FOUND[body]
    assert (found.passed, found.message.replace("LC_CTYPE ", "")) == (passed, message.replace("LC_CTYPE ", ""))


@pytest.mark.parametrize("body", FAILED)
def test_verifiers_that_say_nothing_about_the_policy(tmp_path: Path, body: str) -> None:
    with pytest.raises(VerifierFailed, match=FAILED[body]):
        asyncio.run(verify(verifier(tmp_path, body), "http://127.0.0.1:9"))


def test_a_verifier_that_lacks_something(tmp_path: Path) -> None:
    with pytest.raises(VerifierFailed, match="cannot be loaded: ModuleNotFoundError: No module named 'nothing'"):
        asyncio.run(verify(verifier(tmp_path, "return True, ''", "import nothing"), "http://127.0.0.1:9"))


async def test_a_verifier_that_does_not_end_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = (
        f"child = subprocess.Popen(['sleep', '1000']); pathlib.Path({str(pid)!r}).write_text(str(child.pid))\n"
        "    while True: time.sleep(60)"
    )
    path = verifier(tmp_path, body, "import pathlib, subprocess, time")
    with pytest.raises(VerifierFailed, match=r"did not end within 0\.2 s"):
        await verify(path, "http://127.0.0.1:9", seconds=0.2)
    pid.unlink(missing_ok=True)
    judging = asyncio.ensure_future(verify(path, "http://127.0.0.1:9"))
    await asyncio.to_thread(wait_until, lambda: pid.exists() and pid.read_text())
    judging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await judging
    wait_until(lambda: not running(int(pid.read_text())))


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- servers ----


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ports that are chosen first."""
    first: list[int] = []
    monkeypatch.setattr(servers, "free_port", lambda free=servers.free_port: first.pop(0) if first else free())
    return first


def test_a_server_holds_state_that_a_reset_takes_back(tmp_path: Path, ports: list[int]) -> None:
    with socket.create_server(("", 0)) as taken:
        ports.append(taken.getsockname()[1])

        async def run() -> None:
            server = await AppServer.start(NOTES, tmp_path / "copy")
            assert not server.address.endswith(f":{taken.getsockname()[1]}")
            async with httpx.AsyncClient(base_url=server.address, trust_env=False) as client:
                for state in (1, 2):
                    await client.put("/api/state", json=state)
                assert (await client.get("/api/state")).json() == 2
                await server.reset()
                assert (await client.get("/api/state")).json() == 1
                assert (await client.get("/index.html")).status_code == 200
                for hidden in ("/real-tasks.json", "/real-tasks/task_e1.py", "/function-tasks/task_1.py"):
                    assert (await client.get(hidden)).status_code == 404
            server.check()
            os.kill(server._process.pid, signal.SIGKILL)
            await server._process.wait()
            with pytest.raises(ServerFailed, match="the server of notes ended with -9 during the task"):
                server.check()
            with pytest.raises(ServerFailed, match="the server of notes cannot be reset"):
                await server.reset()
            await server.stop()

        asyncio.run(run())
    assert not (tmp_path / "copy").exists()


async def test_an_idle_server_that_died_is_replaced() -> None:
    async with WebAppsSuite(ROOT).pool(1) as pool:
        async with pool._server(NOTES) as first:
            pass
        async with pool._server(NOTES) as again, pool._server(NOTES) as other:
            assert again is first
            assert other is not first
        assert len(pool._idle) == 1  # for one episode at once
        os.kill(pool._idle[0]._process.pid, signal.SIGKILL)
        async with pool._server(NOTES) as third:
            assert third not in (first, other)
        pid = third._process.pid
    assert not running(pid)


def test_servers_that_do_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = changed(tmp_path, **{"server.py": "raise SystemExit('no licence')"})
    with pytest.raises(ServerFailed, match="the server of notes ended with 1 before it listened: no licence"):
        asyncio.run(AppServer.start(root / "notes", tmp_path / "copy"))
    (root / "notes" / "server.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.setattr(servers, "START_SECONDS", 0.5)
    with pytest.raises(ServerFailed, match=r"does not listen after 0\.5 s: it said nothing"):
        asyncio.run(AppServer.start(root / "notes", tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, signal, sys; from pathlib import Path\n"
        "from holotron.suites.webapps.server import AppServer\n"
        "async def main():\n"
        f"    server = await AppServer.start(Path({str(NOTES)!r}), Path({str(tmp_path / 'copy')!r}))\n"
        "    print(server._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())"
    )
    said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout
    wait_until(lambda: not running(int(said)))


# ---- in a browser ----


# The server of an application that ends once, while the page of its first task is loaded or played.
DIES_ONCE = """
import os, pathlib, runpy
from http.server import SimpleHTTPRequestHandler
flag, send = pathlib.Path({flag!r}), SimpleHTTPRequestHandler.do_GET
if not flag.exists():
    flag.touch()
    SimpleHTTPRequestHandler.do_GET = lambda self: (send(self), self.wfile.flush(), os._exit(3))
runpy.run_path("lasting.py", run_name="__main__")
"""


def test_solved_by_script_and_reported_by_difficulty(tmp_path: Path) -> None:
    root, frail = tmp_path / "apps", tmp_path / "apps" / "frail"
    shutil.copytree(NOTES, root / "notes")
    shutil.copytree(NOTES, frail, ignore=shutil.ignore_patterns("real-tasks.json"))
    (frail / "server.py").rename(frail / "lasting.py")
    (frail / "server.py").write_text(DIES_ONCE.format(flag=str(tmp_path / "died")))
    suite, model = WebAppsSuite(root), Scripted({**SOLUTIONS, "Mark everything as done.": [MILK, ANSWER]})
    protocols, out = (suite.find_protocol("infinity"),), tmp_path / "run"
    run = Evaluation(suite, protocols, out, "script", BareJsonFormat(suite.kinds), sessions=5)
    found = asyncio.run(evaluate(run, model))
    assert {row["task"]: row["successes"] for row in found["tasks"]} == {
        "notes/real/task_e1": 1,
        "notes/real/task_m1": 1,
        "notes/real/task_h1": 0,  # what another episode ticked at the same time is not seen here
        "notes/function/task_1": 1,
        "frail/function/task_1": 1,
    }
    # An episode whose server died is no failure of the policy: it was played again.
    assert (found["retried"], found["infrastructure_failures"]) == (1, 0)
    assert "frail" in found["problem"]
    assert {group: part["success_rate"] for group, part in found["groups"].items()} == {
        "easy": 1, "medium": 1, "hard": 0, "notes": 0.75, "frail": 1,
    }  # fmt: skip
    write_html(found, tmp_path / "report.html")
    assert "<td>hard</td><td>0 of 1</td>" in (tmp_path / "report.html").read_text()
    store = EpisodeStore(out)
    episodes = {info.task.name: store.read(info.id) for info in store.list_episodes() if info.counts}
    hard = episodes["notes/real/task_h1"]
    assert hard.outcome is not None
    assert (hard.outcome.reason, hard.outcome.reward) == ("answered", 0.0)
    assert hard.outcome.detail == "done; verifier: the state is {'done': ['Buy milk'], 'added': []}"
    first = hard.steps[0].observation
    assert (first.width, first.height, first.title) == (1440, 900, "Notes")
    # The font that the page asks for is answered here: nothing was refused, and nobody was told.
    assert not any(step.observation.notices for episode in episodes.values() for step in episode.steps)


# ---- where it plugs in ----


def test_the_command_line_takes_a_root() -> None:
    runner = CliRunner()
    for words, said in (
        (["eval", "webapps"], "needs a root"),
        (["eval", "webapps", "--root", str(ROOT), "--apps", "mail"], "there is no application 'mail'"),
        (["eval", "webapps", "--root", str(ROOT), "--split", "dev"], "there is no split 'dev' of webapps"),
        (["eval", "pages", "--root", str(ROOT)], "--root"),
        (["rollout", "tasks.jsonl", "--root", str(ROOT), "--out", "x"], "--root goes with the tasks webapps"),
        (
            ["rollout", "webapps", "--root", str(ROOT), "--width", "800", "--out", "x"],
            "a view and an origin of their own",
        ),
        (["rollout", "webapps", "--out", "x"], "webapps needs --root"),
    ):
        found = runner.invoke(command_line, words)
        assert (found.exit_code, said in found.output) == (2, True), found.output


def test_it_can_be_learned_from(tmp_path: Path) -> None:
    from holotron.train.rl.config import read_grpo_recipe
    from holotron.train.rl.rollout import Rollout

    path = tmp_path / "recipe.toml"
    path.write_text(f'name = "x"\nstart = "holotron-nano"\nsteps = 1\n[rollout]\nsuite = "webapps"\nroot = "{ROOT}"\n')
    found = Rollout(read_grpo_recipe(path), tmp_path)
    assert found.tasks == find_suite("webapps", ROOT).names()
