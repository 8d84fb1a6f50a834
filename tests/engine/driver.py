"""Drives the engine's loop step by step, and knows what every session should have said."""

from __future__ import annotations

import time

import torch

from holotron.engine.config import EngineConfig
from holotron.engine.engine_loop import EngineLoop
from holotron.engine.requests import FinishEvent, GenerationRequest, TokenEvent
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session_state import SessionState
from holotron.model.model import Model
from tests.engine.invariants import check_loop

GREEDY = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)


class Driver:
    """A loop with collected answers."""

    def __init__(self, model: Model, **config: object) -> None:
        values = {"slots": 9, "pages": 40, "page_size": 4, "prefill_tokens": 8, "max_context": 128}
        dtype = {"state_dtype": model.dtype, "host_bytes": 2**24}
        self.loop = EngineLoop(model, EngineConfig(**(values | dtype | config)))
        self.answers: dict[GenerationRequest, list[int]] = {}
        self.finished: dict[GenerationRequest, FinishEvent] = {}

    def emit(self, request: GenerationRequest, event: TokenEvent | FinishEvent) -> None:
        if isinstance(event, TokenEvent):
            self.answers[request].extend(event.token_ids)
        else:
            self.finished[request] = event

    def start(
        self, session: SessionState, tokens: list[int] = (), sampling: SamplingParams | None = GREEDY, images=()
    ) -> GenerationRequest:
        if tokens:
            self.loop.append(session, tokens, images)
        request = GenerationRequest(session, self.emit, sampling)
        self.answers[request] = []
        self.loop.submit(request)
        return request

    def run(self, *requests: GenerationRequest, most: int = 5000) -> None:
        """Until these requests (or all) are finished; the invariants hold after every step."""
        for _ in range(most):
            if all(request in self.finished for request in requests) if requests else not self.loop.requests:
                return
            if not self.loop.step():
                time.sleep(0.001)  # a copy comes back from disk
            check_loop(self.loop)
        raise AssertionError(f"not finished after {most} steps")

    def turn(
        self, session: SessionState, tokens: list[int] = (), sampling: SamplingParams = GREEDY, images=()
    ) -> list[int]:
        request = self.start(session, tokens, sampling, images)
        self.run(request)
        assert self.finished[request].error is None, self.finished[request].error
        return self.answers[request]


@torch.no_grad()
def greedy_continuation(model: Model, tokens: list[int], count: int) -> list[int]:
    """What the model says, computed from scratch for every token."""
    tokens = list(tokens)
    for _ in range(count):
        (logits,) = model.score([tokens])
        tokens.append(int(logits[-1].argmax()))
    return tokens[len(tokens) - count :]
