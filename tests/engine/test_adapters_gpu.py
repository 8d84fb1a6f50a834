"""Adapters on the GPU: recorded decode steps compute what plain ones do, and what merged weights do."""

import pytest
import torch

from holotron.model.adapters import load_adapters
from tests.model.adapter_files import write_adapter

from .driver import Driver
from .test_engine_gpu import small_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_adapters_inside_graphs(tmp_path):
    model = small_model(torch.float32, "M-M*-")
    merged = write_adapter(model, tmp_path, 1)
    load_adapters(model, {"a": tmp_path})
    prompts = [list(range(10 + i, 60 + i)) for i in range(4)]
    sizes = {"pages": 60, "page_size": 64, "max_context": 900, "prefill_tokens": 1000}
    answers = []
    for graphs in (True, False):
        driver = Driver(model, **sizes, cuda_graphs=graphs)
        sessions = [driver.loop.open(adapter=name) for name in (None, "a", "a", None)]
        requests = [driver.start(session, prompt) for session, prompt in zip(sessions, prompts, strict=True)]
        driver.run()
        answers.append([driver.answers[request] for request in requests])
        if graphs:
            assert {adapted for _, adapted in driver.loop.runner._graphs} == {True}
    assert answers[0] == answers[1]
    for prompt, answer in zip(prompts[1:3], answers[0][1:3], strict=True):
        with torch.no_grad():
            (logits,) = merged.score([prompt + answer])
        for at, token in enumerate(answer, len(prompt) - 1):
            assert logits[at].max() - logits[at, token] < 2e-3
