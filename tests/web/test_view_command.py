"""`holotron view` as a user meets it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import typer
from typer.testing import CliRunner

import holotron
from holotron.cli import view
from holotron.cli.main import CommandGroup
from holotron.episodes.store import EpisodeStore
from tests.web import samples


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return samples.make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    app = typer.Typer(cls=CommandGroup, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    app.command("view", epilog=view.EXAMPLES)(view.view)
    return app


def test_the_help_has_examples(app):
    result = CliRunner(env={"COLUMNS": "120", "TERMINAL_WIDTH": "120"}).invoke(app, ["view", "--help"])
    assert result.exit_code == 0
    assert "holotron view runs/nightly --html report" in result.stdout


def test_misuse_is_one_line_and_exit_code_2(app, store, tmp_path):
    (tmp_path / "something").mkdir()
    (tmp_path / "something" / "else").touch()
    empty = tmp_path / "empty"
    (empty / "episodes").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "episodes").mkdir(parents=True)
    for arguments, words in (
        ([str(tmp_path / "runs")], f"itself; give {tmp_path / 'runs' / 'one'}"),
        ([str(tmp_path / "no-such")], "there is no folder"),
        ([str(empty)], "there are no episodes in"),
        ([str(store.folder / "episodes")], "give the folder above it"),
        ([str(store.folder), "--html", str(tmp_path / "something")], "holds something else"),
        ([str(store.folder), "--html", str(tmp_path / "x"), "--port", "1"], "give one of them"),
    ):
        result = CliRunner().invoke(app, ["view", *arguments])
        assert result.exit_code == 2, result.output
        assert words in result.stderr
        assert [line for line in result.stderr.splitlines() if line.startswith("error:")] == [
            result.stderr.splitlines()[-1]
        ]


def test_a_taken_port_is_a_failure(app, store):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["view", str(store.folder), "--port", str(port), "--no-open"])
    assert result.exit_code == 1
    assert f"port {port} cannot be used" in result.stderr


def test_writing_a_report_prints_the_page(app, store, tmp_path):
    out = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["view", str(store.folder), "--html", str(out), "--no-open"])
    assert (result.exit_code, result.stdout) == (0, f"{out}\n")
    assert "13 episodes" in result.stderr
    assert "damaged: episodes/shopfront-broken" in result.stderr


def test_serving_ends_with_ctrl_c_and_exit_code_0(store):
    program = "import typer; from holotron.cli.view import view; typer.run(view)"
    command = [sys.executable, "-c", program, str(store.folder), "--port", "0", "--no-open"]
    environment = {**os.environ, "PYTHONPATH": str(Path(holotron.__file__).parents[1]), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        address = server.stdout.readline().split()[0]
        assert httpx.get(f"{address}api/episodes", timeout=30).json()["rows"]
        server.send_signal(signal.SIGINT)
        _, errors = server.communicate(timeout=120)
    assert server.returncode == 0, errors
    assert "Traceback" not in errors
