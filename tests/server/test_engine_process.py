"""The engine's process may die, and the server may be told to stop; neither leaves anybody waiting."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from safetensors.torch import load_file, save
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.model.loading import load
from holotron.server.run import listen
from tests.model.adapter_files import write_adapter

from .live import serving, write_checkpoint

CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 600, "ignore_eos": True, "stream": True}
SHORT = LONG | {"max_tokens": 3, "stream": False}


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_engine_that_is_killed_is_started_again(checkpoint):
    with serving(checkpoint, replicas=None, admin_key="operator") as live, live.client("operator") as client:
        session = client.post("/v1/sessions").json()["id"]
        assert client.post(CHAT, json=SHORT | {"session_id": session}).status_code == 200
        pid = client.get("/admin/status").json()["engine_pid"]
        with live.client("operator") as other, other.stream("POST", CHAT, json=LONG) as stream:
            lines = stream.iter_lines()
            next(lines)
            os.kill(pid, signal.SIGKILL)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2][6:])["error"]["code"] == "engine_unavailable"
        refused = client.post(CHAT, json=SHORT)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["type"] == "server_error"
        assert client.get("/health").status_code == 503
        until(lambda: client.get("/health").status_code == 200)
        assert client.post(CHAT, json=SHORT).status_code == 200
        assert client.get(f"/v1/sessions/{session}").status_code == 404
        told = client.get("/admin/status").json()
        assert told["engine_restarts"] == 1
        assert told["engine_pid"] != pid
        assert live.state.admission.total == 0
        last = told["engine_pid"]
    assert not Path(f"/proc/{last}").exists()


def restarted(client: httpx.Client) -> None:
    """Kill the engine, and wait for the next one."""
    told = client.get("/admin/status").json()
    os.kill(told["engine_pid"], signal.SIGKILL)
    until(lambda: client.get("/admin/status").json()["engine_restarts"] > told["engine_restarts"])


def test_an_engine_comes_back_with_the_weights_it_had(checkpoint, tmp_path):
    other = write_checkpoint(tmp_path / "other", seed=1)
    (file,) = other.glob("*.safetensors")
    exact = SHORT | {"temperature": 0, "max_tokens": 12}

    def said(client: httpx.Client) -> tuple[str, str]:
        until(lambda: client.get("/health").status_code == 200)
        answer = client.post(CHAT, json=exact).json()
        return answer["choices"][0]["message"]["content"], answer["weight_version"]

    write_adapter(load(checkpoint, "cpu"), tmp_path / "adapter", 1)
    write_adapter(load(checkpoint, "cpu"), tmp_path / "gone", 2)
    with serving(checkpoint, replicas=None, admin_key="operator") as live, live.client("operator") as client:
        first = said(client)
        for name in ("adapter", "gone"):
            assert client.put(f"/admin/adapters/{name}", json={"path": str(tmp_path / name)}).status_code == 200
        part = {"language_model.lm_head.weight": load_file(file)["language_model.lm_head.weight"].clone()}
        # A part, which was sent, upon the whole at a path: both are there again.
        client.post("/admin/update_weights", json={"path": str(other), "version": "a"})
        whole = said(client)
        client.put("/admin/weights?version=b", content=save({name: -value for name, value in part.items()}))
        sent = said(client)
        assert len({first[0], whole[0], sent[0]}) == 3
        adapted = client.post(CHAT, json=exact | {"model": "adapter"}).json()["choices"]
        (tmp_path / "gone" / "adapter_config.json").unlink()
        restarted(client)
        assert said(client) == sent
        # Adapters are there again as well, but for one that can no longer be read.
        assert client.post(CHAT, json=exact | {"model": "adapter"}).json()["choices"] == adapted
        assert client.post(CHAT, json=exact | {"model": "gone"}).status_code == 404
        assert client.post("/admin/update_weights", json={"path": str(other)}).json()["weight_version"] == "3"
        assert said(client) == (whole[0], "3")
        # Files that are not what they were: it says so, until it is given weights.
        os.utime(file)
        restarted(client)
        until(lambda: live.state.client.weights_lost is not None)
        for answer in (client.get("/health"), client.post(CHAT, json=exact)):
            assert answer.status_code == 503
            assert "weights" in answer.json()["error"]["message"]
        client.post("/admin/update_weights", json={"path": str(checkpoint), "version": "c"})
        assert said(client) == (first[0], "c")
        spools = {str(update.spool.name) for update in live.state.client.weights.updates() if update.spool}
        assert spools == set()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def command(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """`holotron serve`, as it is typed."""
    line = [sys.executable, "-c", "from holotron.cli.main import main; main()", "serve", *map(str, arguments)]
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def started(process: subprocess.Popen[str], port: int) -> httpx.Client:
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"{url}/health", trust_env=False, verify=False).status_code == 200
        except httpx.TransportError:
            return False

    until(answers)
    return httpx.Client(base_url=url, timeout=60, trust_env=False, verify=False)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_being_told_to_stop_finishes_what_runs(checkpoint, name):
    port = free_port()
    options = ("--port", port, "--memory", 0.05, "--device", "cpu", "--max-context", 4096)
    with command(checkpoint, *options) as process, started(process, port) as client:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        marked = LONG | {"messages": [{"role": "user", "content": "XYZZY-MARK"}]}
        with client.stream("POST", CHAT, json=marked) as stream:
            lines = stream.iter_lines()
            next(lines)
            # An init system may send it to all processes of a group, or only to the first.
            if name == "SIGINT":
                os.killpg(process.pid, signal.SIGINT)
            else:
                process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "length"
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        assert "Traceback" not in output
        assert "XYZZY" not in output
        assert children
        assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_a_terminal_gets_lines_for_people_and_its_ctrl_c_reaches_no_engine(checkpoint):
    """An engine that was still importing told where it was interrupted."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "holotron", "serve", str(checkpoint), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(
        line,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that it is who the terminal interrupts
    )
    os.close(theirs)
    children, told, interrupted = Path(f"/proc/{process.pid}/task/{process.pid}/children"), b"", False
    try:
        with suppress(OSError):  # the terminal's end
            while select.select([ours], [], [], 120)[0] and (piece := os.read(ours, 4096)):
                told += piece
                if b"Ctrl-C stops" in told and not interrupted:
                    until(children.read_text)
                    os.write(ours, b"\x03")
                    interrupted = True
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(ours)
    assert f"loading {checkpoint}" in told.decode()
    assert b"Traceback" not in told
    assert b'{"time"' not in told


def failing(*arguments: object) -> str:
    """The one message of a command that cannot start."""
    with command(*arguments) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    assert "Traceback" not in output
    (message,) = [line for line in output.splitlines() if line.startswith("error:")]
    return message


def failing_here(*arguments: object) -> str:
    """The same in this process, for what fails before there is another."""
    done = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert done.exit_code == 1
    (message,) = done.stderr.splitlines()
    assert message.startswith("error:")
    return message


def test_a_model_that_cannot_be_loaded_is_told_in_a_line(checkpoint, tmp_path):
    for source in checkpoint.iterdir():
        content = source.read_bytes()
        (tmp_path / source.name).write_bytes(content[:-1000] if source.suffix == ".safetensors" else content)
    assert "safetensors" in failing(tmp_path, "--port", free_port(), "--memory", 0.05, "--device", "cpu")
    assert "nowhere" in failing_here(tmp_path / "nowhere", "--port", free_port())


def test_a_device_that_is_none_ends_the_start(checkpoint):
    """Torch fails with a type of its own for every such thing; none of them is a reason to try again."""
    assert "the engine cannot start" in failing(checkpoint, "--port", free_port(), "--device", "hpu:7")


def test_a_port_in_use_is_told_before_the_model_is_looked_at(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in failing_here(tmp_path / "nowhere", "--port", port)


def test_answers_are_not_held_back_for_a_second_one():
    """asyncio turns Nagle's algorithm off only for sockets that say they are TCP."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        assert listener.accept()[0].proto == socket.IPPROTO_TCP


def test_signals_and_questions_are_answered_while_the_model_is_loaded(checkpoint):
    port = free_port()
    with command(checkpoint, "--port", port, "--memory", 0.05, "--device", "cpu") as process:
        url = f"http://127.0.0.1:{port}"

        def is_loading() -> bool:
            assert process.poll() is None
            try:
                return httpx.get(f"{url}/health", trust_env=False, verify=False, timeout=60).status_code == 503
            except httpx.ConnectError:
                return False

        until(is_loading)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (engine,) = map(int, children)
        os.kill(engine, signal.SIGSTOP)  # it will never have loaded its model
        refused = httpx.post(f"{url}{CHAT}", json=SHORT, trust_env=False, timeout=60)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    assert not Path(f"/proc/{engine}").exists()
