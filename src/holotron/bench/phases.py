"""Prefill and decode by themselves: tokens per second of each, without a workload around them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holotron.bench.measuring import random_tokens, time_when_idle
from holotron.engine.engine_loop import EngineLoop
from holotron.engine.requests import GenerationRequest
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import SessionState

PROMPT, PROMPTS = 2368, 12  # tokens of each
CONTEXTS = (256, 4096)
STEPS = 64


def measure_phases(loop: EngineLoop, sequences: int) -> dict[str, Any]:
    """Prefill of new prompts, then decode of so many sequences at each context length."""
    figures: dict[str, Any] = {}
    _prefill(loop)  # the same batches once, so that kernels are compiled and library plans made
    figures["prefill_tokens_per_second"] = PROMPT * PROMPTS / _prefill(loop)
    for context in CONTEXTS:
        figures[f"decode_tokens_per_second_{sequences}x{context}"] = _decode(loop, sequences, context)
    return figures


def _prefill(loop: EngineLoop) -> float:
    with _prompted(loop, PROMPT, PROMPTS):
        start = time_when_idle()
        _compute(loop)
        return time_when_idle() - start


def _decode(loop: EngineLoop, sequences: int, context: int) -> float:
    sampling = SamplingParams(max_tokens=STEPS + 24, temperature=0.0, ignore_eos=True)
    with _prompted(loop, context, sequences) as sessions:
        _compute(loop)
        for session in sessions:
            loop.submit(GenerationRequest(session, emit=lambda *_: None, sampling=sampling))
        for _ in range(16):  # the first steps record the graph
            loop.step()
        start = time_when_idle()
        for _ in range(STEPS):
            loop.step()
        return sequences * STEPS / (time_when_idle() - start)


@contextmanager
def _prompted(loop: EngineLoop, prompt: int, count: int) -> Iterator[list[SessionState]]:
    """Sessions with a prompt that waits to be computed."""
    draw, sessions = random.Random(0), [loop.open() for _ in range(count)]
    for session in sessions:
        loop.append(session, random_tokens(loop.model.config, prompt, draw))
        loop.submit(GenerationRequest(session, emit=lambda *_: None))
    yield sessions
    for session in sessions:
        loop.close(session)


def _compute(loop: EngineLoop) -> None:
    while loop.requests:
        loop.step()
