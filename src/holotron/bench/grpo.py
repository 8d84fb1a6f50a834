"""Iterations of online RL of a preset's shape with random weights over recorded screenshots: seconds by part, memory.

What plays and learns is what recipes run: the engine computes with the trainer's frozen weights and the adapter.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from holotron.agent.chat import Message
from holotron.bench.recorded_suite import LettersThenClick, RecordedSuite
from holotron.bench.report import machine, print_figures, write_json
from holotron.bench.screens import draw_screen, png
from holotron.bench.train import TASK
from holotron.model.heartbeat import Heartbeat, to_stderr
from holotron.model.image import image_size
from holotron.model.presets import PRESETS
from holotron.plan.workload import parse_size
from holotron.train.batches import BatchBudget
from holotron.train.lora import LoraConfig
from holotron.train.optimizer import OptimizerConfig, trained
from holotron.train.rl.config import GroupConfig, GrpoRecipe, ObjectiveConfig, RolloutConfig
from holotron.train.rl.played import PlayedSequence
from holotron.train.rl.progress import GrpoProgress, Stopwatch
from holotron.train.rl.rollout_batch import WeighedSequence, pack
from holotron.train.rl.trainer import GrpoTrainer
from holotron.train.sequences import Picture, SequenceWriter

MORE_TOKENS = 64  # of a step, besides its picture and the letters of its answer; the first has the task, too
CLICK_TOKENS = 40
DRAWN = 48  # screenshots, where none were recorded
LEAST_TOLD = 0.1  # seconds of a part


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of the last iteration. Parts are told as they end, and written to the file that will have all."""
    began = monotonic()
    screens = _screens(options)
    recipe, progress = _recipe(options, screens[0]), _Parts(options)
    on_gpu = str(options.device).startswith("cuda")
    with tempfile.TemporaryDirectory() as folder, Heartbeat("making the model") as heartbeat:
        suite = RecordedSuite(screens, options.steps, progress.step)
        trainer = GrpoTrainer(recipe, Path(folder), options.device, suite)
        trainer.rollout.policy_format = LettersThenClick(kinds=("click",), letters=options.answer)
        trainer.watch = watch = Stopwatch(progress.ended)
        progress.ended("model", monotonic() - began)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        told = list[GrpoProgress]()

        def tell(iteration: GrpoProgress) -> None:
            to_stderr(iteration.line)
            told.append(iteration)

        heartbeat.now("compiling and warming up")
        with watch.part("compiling"):
            _warm_up(trainer, screens[0], options)
        watch.read()
        warm = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None
        heartbeat.now("playing and learning")
        trainer.iterate(tell)
    last, model = asdict(told[-1]), trainer.learner.model
    report = machine() | {
        "model": model.config.name,
        "parameters": model.config.parameters,
        "learned_parameters": sum(parameter.numel() for parameter in trained(model).values()),
        "groups": options.groups,
        "group_size": options.group_size,
        "learned_of_each_group": options.learned or options.group_size,
        "episode_steps": last["episode_steps"],
        "screens": len(screens),
        "screen": image_size(screens[0]),
        "batch_tokens": recipe.batch.tokens,
        "answer_tokens": last["answer_tokens"],
        "updates": recipe.updates,
        "recompute": recipe.recompute,
        "compile": recipe.compile,
        "seconds": last["seconds"],
        "seconds_by_part": last["parts"],
        "seconds_of_all": monotonic() - began,
        "seconds_to_prepare": {name: progress.parts[name] for name in ("model", "compiling", "engine")},
        "rollout_steps_per_second": last["episodes"] * last["episode_steps"] / last["parts"]["rollout"],
        **{name: last[name] for name in ("logprob_difference", "fresh_tokens", "scored_difference", "entropy")},
        **{name: last[name] for name in ("kept", "lost", "gradient", "checksum")},
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "peak_memory_of_learning_gib": warm,
        "session_memory_gib": recipe.rollout.memory_gib,
    }
    if not options.json:
        print_figures(report, digits=4)
    return report


class _Parts:
    """What is told while it runs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.parts: dict[str, float] = {}
        self._out, self._each = options.out, options.groups * options.group_size
        self._began, self._steps = monotonic(), 0

    def ended(self, name: str, seconds: float) -> None:
        self.parts[name] = self.parts.get(name, 0.0) + seconds
        if seconds >= LEAST_TOLD:
            to_stderr(f"{name} {seconds:.1f} s")
            if self._out:
                write_json(self._out, machine() | {"whole": False, "seconds_by_part": self.parts})

    def step(self) -> None:
        self._began = self._began if self._steps else monotonic()
        self._steps += 1
        if self._steps % self._each == 0:
            speed = self._steps / max(1e-9, monotonic() - self._began)
            to_stderr(f"{self._steps} steps, {speed:.2f}/s since the first")


def _screens(options: argparse.Namespace) -> list[bytes]:
    if options.screens is None:
        size = parse_size("--screen", options.screen)
        return [png(draw_screen(size, kind, 1.0)) for kind in range(DRAWN)]
    found = [path.read_bytes() for path in sorted(options.screens.glob("*.png"))]
    if not found:
        raise SystemExit(f"--screens: there are no PNG files in {options.screens}")
    return found


def _recipe(options: argparse.Namespace, screen: bytes) -> GrpoRecipe:
    config = PRESETS[options.preset].config
    if config.vision is None:
        raise SystemExit(f"{options.preset} has no vision tower; choose a preset that sees screenshots")
    picture = Picture(screen, image_size(screen), config.vision)
    chunk = config.mamba.chunk_size if config.mamba else 64
    step = picture.patches // 4 + 2 * len(picture.grids) + MORE_TOKENS + options.answer
    tokens = -(-(options.steps * step + len(TASK)) // chunk) * chunk
    learned = -(-options.steps * (options.answer + CLICK_TOKENS) // 256) * 256
    return GrpoRecipe(
        name="bench",
        start=options.preset,
        random=True,
        steps=options.iterations,
        dtype="bfloat16" if str(options.device).startswith("cuda") else "float32",
        compile=not options.no_compile,
        recompute=options.recompute,
        keep_every=1_000_000,
        updates=options.updates,
        rollout=RolloutConfig(
            suite=RecordedSuite.name,
            steps=options.steps,
            seconds=3600,
            max_tokens=options.answer + CLICK_TOKENS,
            sessions=options.groups * options.group_size,
            staleness=0,
            memory_gib=options.memory,
            tokens_per_session=tokens,
        ),
        groups=GroupConfig(
            size=options.group_size, count=options.groups, learned=options.learned, refill=0.0, replay=0
        ),
        objective=ObjectiveConfig(tokens=float(options.steps * options.answer)),
        lora=LoraConfig(options.lora),
        batch=BatchBudget(
            tokens=tokens,
            patches=options.steps * picture.patches,
            learned=min(tokens, learned),
            sequences=1,  # an episode fills it
            images=options.steps * len(picture.grids),
            longest=tokens,
        ),
        optimizer=OptimizerConfig(rate=1e-4, warmup=1, decay=0.0, average=0.0, weight_decay=0.0),
    )


def _warm_up(trainer: GrpoTrainer, screen: bytes, options: argparse.Namespace) -> None:
    """One update over a made-up episode whose advantages are 0: all is compiled, and no weight changes."""
    learner, config = trainer.learner, trainer.learner.model.config
    answer = "a" * options.answer + '{"action":"click","x":500,"y":500}'
    turns = [([Message("user", TASK if step == 0 else "", screen)], answer, True) for step in range(options.steps)]
    sequence = SequenceWriter(learner.writer).write_turns(turns, "bench")
    count = int(sequence.learn.sum())
    played = PlayedSequence(
        sequence,
        np.zeros(count, np.float32),
        np.zeros(count, np.int64),
        np.arange(count) * options.steps // count,
        np.full((count, -(-config.vocab_size // 32)), -1, np.int32),
        ("",) * options.steps,
    )
    weighed = [WeighedSequence(played, (0.0,) * options.steps)]
    learner.update(learner.passes(pack(trainer.packer, weighed, trainer.recipe.objective))[0], 0, 0)
