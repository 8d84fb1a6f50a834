"""Runs of online RL in processes that are killed, and what they leave."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.progress import GrpoProgress
from holotron.train.rl.trainer import EPISODES, GrpoTrainer

PATIENCE = 120.0
# What a run tells that does not depend on the clock.
SAME = ("checksum", "loss", "gradient", "success", "tasks", "kept", "flat", "replayed", "entropy")


def train(path: Path, out: Path, **changes: Any) -> list[GrpoProgress]:
    told: list[GrpoProgress] = []
    torch.set_num_threads(1)  # as in the process that is killed
    GrpoTrainer(read_grpo_recipe(path, **changes), out, "cpu").run(told.append)
    return told


def lines(out: Path) -> list[dict[str, Any]]:
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def episodes(out: Path) -> int:
    folder = out / EPISODES / "episodes"
    return len(os.listdir(folder)) if folder.exists() else 0


def killed_run(path: Path, out: Path, moments: Sequence[Callable[[], bool]]) -> None:
    """Begin a run as often as there are moments, and kill it without warning as soon as one has come."""
    server = multiprocessing.get_context("forkserver")  # a process that has imported everything once
    server.set_forkserver_preload(["holotron.train.rl.trainer", "holotron.train.rl.rollout"])
    for moment in moments:
        process = server.Process(target=train, args=(path, out))
        process.start()
        deadline = time.monotonic() + PATIENCE
        while not moment():
            assert process.is_alive(), "the run ended by itself"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE)
