"""The loop closes, by the command line alone: play, correct, learn, serve, evaluate; and again with an adapter."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from holotron.cli.main import app
from holotron.episodes.store import EpisodeStore
from holotron.model.loading import load

from .command_line import begin
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
LORA_RECIPE = """
name = "adapter"
stage = "navigation"
start = "run/weights"
steps = 6
log_every = 3
data = [{ store = "episodes" }]
lora = { rank = 4 }
"""


def test_a_policy_plays_is_corrected_learns_is_served_and_measured(tmp_path: Path) -> None:
    write_clicker(tmp_path / "start")
    (tmp_path / "recipe.toml").write_text(RECIPE + CLICKER_RECIPE)

    # A fleet plays with weights that know nothing, and the teacher says what was to be done.
    command(tmp_path, "data", "miniwob", TASK, "--model", "start", "--out", "episodes", *PLAYED)
    assert json.loads(command(tmp_path, "data", "check", "episodes", "--json"))["problems"] == []

    command(tmp_path, "train", "sft", "recipe.toml", "--out", "run", "--device", "cpu")
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["loss"] < 0.5 * metrics[0]["loss"]
    assert set(metrics[-1]["kinds"]) == {"dagger"}

    (tmp_path / "lora.toml").write_text(LORA_RECIPE + CLICKER_RECIPE)
    command(tmp_path, "train", "sft", "lora.toml", "--out", "tuned", "--device", "cpu")
    check_in_peft(tmp_path / "run" / "weights", tmp_path / "tuned" / "adapter")

    log = tmp_path / "serve.log"
    served = ["serve", "run/weights", "--adapter", "tuned=tuned/adapter", "--port", "0", "--device", "cpu"]
    server = begin(tmp_path, served, log)
    try:
        url = address(log)
        measured = ("eval", "miniwob", "--tasks", TASK, "--seeds", ",".join(map(str, SEEDS)))
        asked = ("--endpoint", f"{url}/v1", "--format", "nano", "--max-tokens", "32", "--out", "measured", "--json")
        report = json.loads(command(tmp_path, *measured, *asked))
        # What the adapter plays beside the base is episodes again.
        (tmp_path / "tasks.jsonl").write_text(json.dumps({"task": "Look", "url": f"{url}/health"}) + "\n")
        asked = ("--endpoint", f"{url}/v1", "--format", "nano", "--name", "tuned", "--max-tokens", "32")
        command(tmp_path, "rollout", "tasks.jsonl", *asked, "--steps", "1", "--out", "again", "--browsers", "1")
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
    assert report["episodes"] == len(SEEDS)
    # The weights it began with solve an eighth of them, by chance, and those it ended with about a half.
    assert report["success_rate"] >= 0.25
    (again,) = EpisodeStore(tmp_path / "again").list_episodes()
    assert (again.policy.model, again.finished) == ("tuned", True)


def command(folder: Path, *words: str) -> str:
    """What a command prints, in this process, where all that it imports is there already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def check_in_peft(base: Path, adapter: Path) -> None:
    """PEFT over transformers computes from the two folders what is computed here."""
    from peft import PeftModel
    from transformers.models.nemotron_h_omni.modeling_nemotron_h_omni import NemotronH_Omni_Reasoning_V3

    theirs = NemotronH_Omni_Reasoning_V3.from_pretrained(base, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(theirs, str(adapter)).eval()
    ours, tokens = load(base, "cpu", torch.float32, adapters={"tuned": adapter}), list(range(20, 60))
    with torch.no_grad():
        alone = ours.score([tokens])[0]
        with ours.using("tuned"):
            got = ours.score([tokens])[0]
        expected = adapted(torch.tensor([tokens]), use_cache=False).logits[0]
    assert float((got - expected).abs().max()) < 1e-4
    assert float((got - alone).abs().max()) > 1e-3


def address(log: Path) -> str:
    """Where the server listens, once it says so."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace")):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace")[-2000:])
