"""Runs of online RL against servers in other processes, and what they are compared by."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from holotron.episodes.store import EpisodeStore
from holotron.train.learner import Learner
from holotron.train.rl.config import read_grpo_recipe
from holotron.train.rl.progress import GrpoProgress
from holotron.train.rl.trainer import EPISODES, GrpoTrainer

from .runs import SAME
from .servers import Server


def against(path: Path, *servers: Server, more: str = "") -> Path:
    """The recipe, played against these."""
    engines = "engines = [" + ", ".join(f'"{server.ready().url}"' for server in servers) + "]"
    there = path.with_name("there.toml")
    there.write_text(path.read_text().replace("[groups]", f"{engines}\n{more}\n[groups]"))
    return there


def run_with(path: Path, out: Path, after: Callable[[GrpoTrainer, int], None]) -> list[GrpoProgress]:
    told: list[GrpoProgress] = []
    trainer = GrpoTrainer(read_grpo_recipe(path), out, "cpu")

    def tell(progress: GrpoProgress) -> None:
        told.append(progress)
        after(trainer, progress.step)

    torch.set_num_threads(1)
    trainer.run(tell)
    return told


def checksums_of(learner: Learner) -> dict[str, str]:
    return {name: sha256(weight.numpy().tobytes()).hexdigest() for name, weight in learner.weights(averaged=False)}


def check_same(told: list[GrpoProgress], expected: list[GrpoProgress]) -> None:
    for one, other in zip(told, expected, strict=True):
        for key in SAME:
            assert getattr(one, key) == getattr(other, key), (one.step, key)


def drawn(out: Path) -> dict[str, list[Any]]:
    """What each attempt drew, and with which weights."""
    store = EpisodeStore(out / EPISODES)
    found = {}
    for info in store.list_episodes():
        outputs = [step.output for step in store.steps(info.id)]
        found[info.id] = [
            (each.prompt_ids, each.token_ids, each.forced, each.weight_version, each.weight_versions)
            for each in outputs
            if each is not None
        ]
    return found
