"""The loop closes, by the command line alone: play, correct, learn, serve, evaluate."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

from .command_line import begin, holotron
from .samples import CLICKER_RECIPE, write_clicker

TASK = "click-test"  # a button somewhere on the page
SEEDS = range(1_000_000_000, 1_000_000_016)  # held out
PLAYED = ("--episodes", "30", "--sessions", "15")  # so many at once, since such a policy likes to wait
RECIPE = """
name = "loop"
stage = "navigation"
start = "start"
steps = 60
log_every = 30
data = [{ store = "episodes" }]
"""


def test_a_policy_plays_is_corrected_learns_is_served_and_measured(tmp_path: Path) -> None:
    write_clicker(tmp_path / "start")
    (tmp_path / "recipe.toml").write_text(RECIPE + CLICKER_RECIPE)

    # A fleet plays with weights that know nothing, and the teacher says what was to be done.
    holotron(tmp_path, "data", "miniwob", TASK, "--model", "start", "--out", "episodes", *PLAYED)
    assert json.loads(holotron(tmp_path, "data", "check", "episodes", "--json"))["problems"] == []

    holotron(tmp_path, "train", "sft", "recipe.toml", "--out", "run", "--device", "cpu")
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["loss"] < 0.5 * metrics[0]["loss"]
    assert set(metrics[-1]["kinds"]) == {"dagger"}

    log = tmp_path / "serve.log"
    server = begin(tmp_path, ["serve", "run/weights", "--port", "0", "--device", "cpu"], log)
    try:
        url = address(log)
        measured = ("eval", "miniwob", "--tasks", TASK, "--seeds", ",".join(map(str, SEEDS)))
        asked = ("--endpoint", f"{url}/v1", "--format", "nano", "--max-tokens", "32", "--out", "measured", "--json")
        report = json.loads(holotron(tmp_path, *measured, *asked))
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
    assert report["episodes"] == len(SEEDS)
    # The weights it began with solve an eighth of them, by chance, and those it ended with about a half.
    assert report["success_rate"] >= 0.25


def address(log: Path) -> str:
    """Where the server listens, once it says so."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace")):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace")[-2000:])
