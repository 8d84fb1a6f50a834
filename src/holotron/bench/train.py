"""Training steps of a preset's shape with random weights over synthetic episodes: tokens/s, share of the peak, memory.

Screenshots are files that go through the batch builder, conversations are written by the template, and a step is the
one that recipes run.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from holotron.agent.chat import Message
from holotron.bench.measuring import time_when_idle, write_profile
from holotron.bench.report import machine, print_figures
from holotron.bench.screens import draw_screen, png
from holotron.model.config import ModelConfig
from holotron.model.heartbeat import Heartbeat
from holotron.model.presets import PRESETS
from holotron.plan.workload import parse_size
from holotron.train.batches import BatchBudget, Packer, TrainingBatch
from holotron.train.flops import Passes, peak_flops, recomputed_flops, training_flops
from holotron.train.forward import Recompute
from holotron.train.learner import Learner
from holotron.train.lora import LoraConfig, all_targets
from holotron.train.optimizer import OptimizerConfig
from holotron.train.recipe import DataSource, Recipe
from holotron.train.sequences import Exchange, Sequence, SequenceWriter

TASK = "Find the cheapest flight from Hamburg to Lisbon in the second week of May, one bag, and put it into the basket."
SYSTEM = "You control a browser. Look at the screenshot, say what you see and what you will do, then do it. " * 4
SEEN = "The page has loaded; the last click was on the list of results. What is next?"
NOTES = "Notes from the last time: the search asks for dates first, and prices are shown without the bag. "
KINDS = 8  # screenshots that differ


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--preset", default="holotron-12b", choices=PRESETS, metavar="NAME", help="shape of the model")
    command.add_argument("--tokens", type=int, default=32768, help="tokens of a step")
    command.add_argument("--steps", type=int, default=20, help="steps of an episode; as many are learned as fit")
    command.add_argument("--screen", default="1920x1080", help="WIDTHxHEIGHT of the screenshots")
    command.add_argument("--answer", type=int, default=128, help="letters, and so tokens, of an answer")
    command.add_argument("--lora", type=int, default=0, metavar="RANK", help="low-rank changes; 0 trains everything")
    command.add_argument("--train-tower", action="store_true", help="the tower learns, too")
    command.add_argument("--recompute", default="full", choices=get_args(Recompute))
    command.add_argument("--no-compile", action="store_true", help="run layers as they are")
    command.add_argument("--optimizer", default="adamw", choices=("adamw", "muon"))
    command.add_argument("--warmup", type=int, default=2, help="steps before measuring, which compile")
    command.add_argument("--measured", type=int, default=4, help="steps that are measured")
    command.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    command.add_argument("--profile", type=Path, help="write a table of where the device's time goes")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one case."""
    device = torch.device(options.device)
    recipe = _recipe(options)
    with Heartbeat("making the model"):
        learner = Learner(recipe, device)
    config, writer = learner.model.config, SequenceWriter(learner.writer)
    sequences = _sequences(writer, config, options)
    budget = _budget(sequences, config, options.tokens)
    learner.recipe = replace(recipe, batch=budget)
    began = time.perf_counter()
    batch = Packer(config, budget).build(sequences)
    built = time.perf_counter() - began
    if device.type == "cuda":
        batch = batch.pin()
        torch.cuda.reset_peak_memory_stats()
    with Heartbeat("compiling and warming up"):
        began = time_when_idle()
        for step in range(options.warmup):
            learner.learn([batch], step)
        warm = time_when_idle() - began
    began = time_when_idle()
    for step in range(options.measured):
        (loss, _), gradient = learner.learn([batch], options.warmup + step)
    seconds = (time_when_idle() - began) / options.measured
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
    passes = Passes.of(learner.model)
    flops = training_flops(config, batch, passes)
    again = recomputed_flops(config, batch, passes, recipe.recompute)
    peak = peak_flops(device)
    report = machine() | {
        "model": config.name,
        "parameters": config.parameters,
        "learned_parameters": sum(p.numel() for p in learner.model.parameters() if p.requires_grad),
        "sequences": [len(sequence.token_ids) for sequence in sequences],
        "tokens": batch.used_tokens,
        "images": sum(map(len, batch.pixels)),
        "patches": batch.used_patches,
        "learned_tokens": int(batch.weights_N.sum()),
        "recompute": recipe.recompute,
        "compile": recipe.compile,
        "passes": vars(passes),
        "seconds_per_step": seconds,
        "tokens_per_second": batch.used_tokens / seconds,
        "samples_per_second": batch.examples / seconds,
        "model_flops_per_step": flops,
        "model_tflops_per_second": flops / seconds / 1e12,
        "hardware_tflops_per_second": (flops + again) / seconds / 1e12,
        "share_of_peak": flops / seconds / peak if peak else None,
        "hardware_share_of_peak": (flops + again) / seconds / peak if peak else None,
        "peak_memory_gib": memory,
        "loss": float(loss),
        "gradient": float(gradient),
        "seconds_to_warm_up": warm,
        "seconds_to_build_batch": built,
    }
    if learner.cuda_graph is None:
        report["seconds_by_part"] = _parts(learner, batch, options.warmup + options.measured)
    if options.profile:
        write_profile(options.profile, lambda: learner.learn([batch], 0), on_gpu=device.type == "cuda")
    if not options.json:
        print_figures(report, digits=3)
    return report


def _recipe(options: argparse.Namespace) -> Recipe:
    config = PRESETS[options.preset].config
    frozen: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    if options.lora:
        targets = all_targets(config) if options.train_tower else ()
    elif config.vision is not None and not options.train_tower:
        frozen = ("vision",)
    return Recipe(
        name="bench",
        stage="navigation",
        start=options.preset,
        random=True,
        steps=1000,
        data=(DataSource(shards="synthetic"),),
        batches=1,
        compile=not options.no_compile,
        recompute=options.recompute,
        frozen=frozen,
        lora=LoraConfig(options.lora, targets=targets),
        optimizer=OptimizerConfig(kind=options.optimizer, rate=1e-4, average=0.0),
    )


def _sequences(writer: SequenceWriter, config: ModelConfig, options: argparse.Namespace) -> list[Sequence]:
    """Episodes that fill a step; the last steps of one are left out where they would not fit."""
    size = parse_size("--screen", options.screen)
    screens = [png(draw_screen(size, kind, 1.0)) for kind in range(KINDS)] if config.vision else [None]
    turns = list[Exchange]()
    for step in range(options.steps):
        shown = Message("user", SEEN, screens[step % len(screens)])
        turns.append(([shown], _answer(step, options.answer), True))

    def written(steps: int, more: int = 0) -> Sequence:
        told = [Message("system", SYSTEM + NOTES * (more // len(NOTES)) + NOTES[: more % len(NOTES)])]
        (shown, answer, learned), *others = turns[:steps]
        return writer.write_turns([([*told, Message("user", TASK), *shown], answer, learned), *others], "bench")

    steps = options.steps
    while steps > 1 and len(written(steps).token_ids) > options.tokens:
        steps -= 1
    length = len(written(steps).token_ids)
    if length > options.tokens:
        raise SystemExit(f"one step has {length} tokens: --tokens {options.tokens} is too few")
    episodes = options.tokens // length
    # A letter of the notes is a token: they fill what is left.
    return [written(steps, options.tokens // episodes - length)] * episodes


def _answer(step: int, letters: int) -> str:
    action = f'{{"action":"click","x":{37 * step % 1000},"y":{53 * step % 1000}}}'
    return ("I see the results and will open the one that is cheapest. " * letters)[:letters] + action


def _budget(sequences: list[Sequence], config: ModelConfig, tokens: int) -> BatchBudget:
    """Just what the sequences need."""
    pictures = [picture for sequence in sequences for picture in sequence.pictures]
    learned = sum(int(sequence.learn.sum()) for sequence in sequences)
    chunk = config.mamba.chunk_size if config.mamba else tokens
    return BatchBudget(
        tokens=tokens,
        patches=sum(picture.patches for picture in pictures),
        learned=min(tokens, -(-learned // 256) * 256),
        # Half a chunk is kept for each, so that all of them find room.
        sequences=2 * len(sequences) if tokens % chunk or len(sequences) > 1 else 1,
        images=sum(len(picture.grids) for picture in pictures),
        longest=max(len(sequence.token_ids) for sequence in sequences),
    )


class _Marks:
    """Moments of a step on the device, by name."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._at = device, list[tuple[str, Any]]()

    def __call__(self, name: str) -> None:
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._at.append((name, event))
        else:
            self._at.append((name, time.perf_counter()))

    def seconds(self) -> dict[str, float]:
        """Until each mark from the one before it."""
        time_when_idle()
        spent: dict[str, float] = {}
        for (_, begin), (name, end) in zip(self._at, self._at[1:], strict=False):
            took = begin.elapsed_time(end) / 1e3 if self._device.type == "cuda" else end - begin
            spent[name] = spent.get(name, 0.0) + took
        return spent


def _parts(learner: Learner, batch: TrainingBatch, step: int) -> dict[str, float]:
    """One step more, with marks where its parts meet."""
    marks, model, hooks = _Marks(learner.device), learner.model, list[Any]()

    def before(module: nn.Module, name: str) -> None:
        hooks.append(module.register_forward_pre_hook(lambda *_: marks(name)))

    def behind_decoder(_: nn.Module, __: Any, hidden: torch.Tensor) -> None:
        marks("decoder forward")
        hidden.register_hook(lambda _: marks("head and loss"))

    if model.vision is not None:
        before(model.vision.patch_embed, "prepare images")
    before(model.decoder, "tower forward" if model.vision is not None else "prepare")
    hooks.append(model.decoder.register_forward_hook(behind_decoder))
    hooks.append(learner.optimizers[0].register_step_pre_hook(lambda *_: marks("backward")))
    marks("begin")
    learner.learn([batch], step)
    marks("optimizer")
    for hook in hooks:
        hook.remove()
    return marks.seconds()
