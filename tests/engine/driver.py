"""Drives the engine's core step by step, and knows what every session should have said."""

from __future__ import annotations

import time

import torch

from holotron.engine.config import EngineConfig
from holotron.engine.engine_loop import EngineLoop
from holotron.engine.sampling import SamplingParams
from holotron.engine.session_state import SessionState
from holotron.engine.tasks import FinishEvent, Task, TokenEvent
from holotron.model.model import Model

GREEDY = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)


class Driver:
    """A core with collected answers."""

    def __init__(self, model: Model, **config: object) -> None:
        values = {"slots": 9, "pages": 40, "page_size": 4, "prefill_tokens": 8, "max_context": 128}
        dtype = {"state_dtype": model.dtype, "host_bytes": 2**24}
        self.core = EngineLoop(model, EngineConfig(**(values | dtype | config)))
        self.answers: dict[Task, list[int]] = {}
        self.finished: dict[Task, FinishEvent] = {}

    def emit(self, task: Task, event: TokenEvent | FinishEvent) -> None:
        if isinstance(event, TokenEvent):
            self.answers[task].extend(event.token_ids)
        else:
            self.finished[task] = event

    def start(self, context: SessionState, tokens: list[int] = (), sampling: SamplingParams | None = GREEDY) -> Task:
        if tokens:
            self.core.append(context, tokens)
        task = Task(context, self.emit, sampling)
        self.answers[task] = []
        self.core.submit(task)
        return task

    def run(self, *tasks: Task, most: int = 5000) -> None:
        """Until these tasks (or all) are finished; the invariants hold after every step."""
        for _ in range(most):
            if all(task in self.finished for task in tasks) if tasks else not self.core.tasks:
                return
            if not self.core.step():
                time.sleep(0.001)  # a copy comes back from disk
            self.core.check()
        raise AssertionError(f"not finished after {most} steps")

    def turn(self, context: SessionState, tokens: list[int] = (), sampling: SamplingParams = GREEDY) -> list[int]:
        task = self.start(context, tokens, sampling)
        self.run(task)
        assert self.finished[task].error is None, self.finished[task].error
        return self.answers[task]


@torch.no_grad()
def greedy_continuation(model: Model, tokens: list[int], count: int) -> list[int]:
    """What the model says, computed from scratch for every token."""
    tokens = list(tokens)
    for _ in range(count):
        (logits,) = model.score([tokens])
        tokens.append(int(logits[-1].argmax()))
    return tokens[len(tokens) - count :]
