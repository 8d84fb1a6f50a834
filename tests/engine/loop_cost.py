"""What the engine's loop costs by itself: the time of a decode step that is not spent in the model."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from holotron.bench.measuring import quantile
from holotron.bench.report import machine, print_figures, write_json
from holotron.engine.build import EngineOptions, build_engine
from holotron.engine.requests import GenerationRequest
from holotron.engine.sampling_params import SamplingParams
from holotron.model.initialize import random_model
from tests.tiny_checkpoint import TINY


def measure_loop(sessions: int = 64, steps: int = 300) -> dict[str, Any]:
    """Milliseconds per decode step outside of the model: planning, batching, sampling, bookkeeping, telling."""
    options = EngineOptions(sessions=sessions, max_context=640, checkpoints=0, host_gib=0, tokenizer=False)
    loop = build_engine(options, random_model(TINY), stepped=True).loop
    sampling = SamplingParams(max_tokens=steps + 50, temperature=0.0, ignore_eos=True)
    for number in range(sessions):
        session = loop.open()
        loop.submit(GenerationRequest(session, emit=lambda *_: None, sampling=sampling), [10 + number % 200] * 20)
    clock = ModelClock(loop.model)
    outside, inside = [], []
    for _ in range(20):
        loop.step()
    for _ in range(steps):
        clock.spent = 0.0
        start = time.perf_counter()
        loop.step()
        outside.append(time.perf_counter() - start - clock.spent)
        inside.append(clock.spent)
    return {
        "sessions": sessions,
        "threads": torch.get_num_threads(),
        "loop_milliseconds": 1000 * median(outside),
        "loop_milliseconds_p95": 1000 * quantile(outside, 0.95),
        "model_milliseconds": 1000 * median(inside),
    }


class ModelClock:
    """Adds up the time inside the model's three parts: embedding, layers and head."""

    def __init__(self, model: nn.Module) -> None:
        self.spent = 0.0
        self._entered = 0.0
        decoder = model.decoder
        assert isinstance(decoder, nn.Module)
        for part in (decoder.embeddings, decoder, decoder.lm_head):
            assert isinstance(part, nn.Module)
            part.register_forward_pre_hook(self._enter)
            part.register_forward_hook(self._leave)

    def _enter(self, *_: object) -> None:
        self._entered = time.perf_counter()

    def _leave(self, *_: object) -> None:
        self.spent += time.perf_counter() - self._entered


def main() -> None:
    parser = argparse.ArgumentParser(description="milliseconds per step of the engine's loop besides the model")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--out", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    figures = machine() | {"command": f"python -m tests.engine.loop_cost --sessions {options.sessions}"}
    figures |= measure_loop(options.sessions)
    print_figures(figures, digits=3)
    if options.out:
        write_json(options.out, figures)


if __name__ == "__main__":
    main()
