"""Prefill and decode by themselves: tokens per second of each, without a workload around them."""

from __future__ import annotations

import random
import time
from typing import Any

import torch

from holotron.engine.engine_loop import EngineLoop
from holotron.engine.requests import GenerationRequest
from holotron.engine.sampling import SamplingParams


def measure_phases(
    loop: EngineLoop,
    *,
    sequences: int = 100,
    prompt: int = 2368,
    contexts: tuple[int, ...] = (256, 4096),
    steps: int = 64,
) -> dict[str, Any]:
    """Prefill of new prompts, then decode of so many sequences at each context length."""
    figures: dict[str, Any] = {}
    count = 12
    _prefill(loop, prompt, count)  # the same batches once, so that kernels are compiled and library plans made
    figures["prefill_tokens_per_second"] = prompt * count / _prefill(loop, prompt, count)
    for context in contexts:
        figures[f"decode_tokens_per_second_{sequences}x{context}"] = _decode(loop, sequences, context, steps)
    return figures


def _tokens(loop: EngineLoop, count: int) -> list[int]:
    return random.choices(range(min(50_000, loop.model.config.vocab_size)), k=count)


def _prefill(loop: EngineLoop, prompt: int, count: int) -> float:
    sessions = [loop.open() for _ in range(count)]
    for session in sessions:
        loop.append(session, _tokens(loop, prompt))
        loop.submit(GenerationRequest(session, emit=lambda *_: None))
    _wait()
    start = time.perf_counter()
    while loop.requests:
        loop.step()
    _wait()
    seconds = time.perf_counter() - start
    for session in sessions:
        loop.close(session)
    return seconds


def _decode(loop: EngineLoop, sequences: int, context: int, steps: int) -> float:
    sampling = SamplingParams(max_tokens=steps + 24, temperature=0.0, ignore_eos=True)
    sessions = [loop.open() for _ in range(sequences)]
    for session in sessions:
        loop.append(session, _tokens(loop, context))
        loop.submit(GenerationRequest(session, emit=lambda *_: None))
    while loop.requests:
        loop.step()
    for session in sessions:
        loop.submit(GenerationRequest(session, emit=lambda *_: None, sampling=sampling))
    for _ in range(16):  # the first steps record the graph
        loop.step()
    _wait()
    start = time.perf_counter()
    for _ in range(steps):
        loop.step()
    _wait()
    seconds = time.perf_counter() - start
    for session in sessions:
        loop.close(session)
    return sequences * steps / seconds


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
