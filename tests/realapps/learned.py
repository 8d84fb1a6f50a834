"""A model of its own for a script: it learns one recorded run by heart, and repeats it by the command line alone.

It is tiny and knows nothing else. What it shows is the whole way of a model's answers: checkpoint, engine, sessions,
grammar, format and browser, in one process and through the server.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holotron.agent.policy_format import NANO, save_format
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.initialize import random_model
from holotron.model.text.policy_tokenizer import save_policy_texts
from tests.realapps.application import Application
from tests.realapps.script import SIZE
from tests.train.command_line import ENVIRONMENT, PROGRAM, begin, holotron
from tests.train.samples import CLICKER
from tests.train.test_loop_closes import address

RECIPE = """
name = "by-heart"
stage = "navigation"
start = "start"
steps = 150
max_patches = 40
log_every = 20
dtype = "float32"
workers = 0
coordinate_sigma = 0.5
data = [{{ store = "episodes", format = "{format}" }}]
[batch]
tokens = 1024
patches = 1280
learned = 640
sequences = 1
images = 32
[optimizer]
kind = "muon"
rate = 6e-3
warmup = 10
average = 0.9
decay = 0.4
"""


def learn(folder: Path, application: Application) -> Path:
    """The weights, from the episodes in the folder."""
    kinds = tuple(dict.fromkeys(step.action for step in application.script))
    policy_format = NANO.with_kinds(kinds)
    start = folder / "start"
    save_checkpoint(random_model(CLICKER), start)
    save_policy_texts(CLICKER, start)
    save_format(policy_format, start)
    (folder / "recipe.toml").write_text(RECIPE.format(format=policy_format.spec))
    holotron(folder, "train", "sft", "recipe.toml", "--out", "run", "--device", "cpu")
    weights = folder / "run" / "weights"
    (weights / "policy.json").write_text(json.dumps({"format": policy_format.spec, "size": SIZE}))
    return weights


def run(folder: Path, application: Application, origin: str, browser: str, *policy: str) -> str:
    """`holotron run` of the task, recorded in `folder`; all that it prints."""
    name, value = application.secret
    (secret := folder / "secret.txt").write_text(value)
    words = ["run", application.task, "--url", origin + application.start, "--record", str(folder / "episodes")]
    words += ["--secret", f"{name}=@{secret}", "--steps", str(len(application.script) + 5), *policy]
    environment = ENVIRONMENT | {"HOLOTRON_CHROMIUM": browser}
    done = subprocess.run([*PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=900)
    print(done.stderr, done.stdout, file=sys.stderr)
    return done.stdout + done.stderr


@contextmanager
def serving(folder: Path, weights: Path) -> Iterator[str]:
    """`holotron serve` of the weights; the address for --endpoint."""
    log = folder / "serve.log"
    server = begin(folder, ["serve", str(weights), "--port", "0", "--device", "cpu"], log)
    try:
        yield f"{address(log)}/v1"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
