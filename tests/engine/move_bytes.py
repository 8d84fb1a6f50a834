"""A session with as many bytes as 25,000 tokens of the 12B, moved between two engines on the CPU, over loopback.

    python -m tests.engine.move_bytes --repeats 5 --out move-cpu.json

It is in host memory at both ends, so that what is measured is the way between them. Nothing computes its memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from holotron.bench.move import _move
from holotron.bench.report import machine
from holotron.engine.config import EngineConfig
from holotron.engine.engine import Engine
from holotron.model.config import AttentionConfig, MambaConfig, ModelConfig
from holotron.model.initialize import random_model

TOKENS = 25_000
SHAPE = ModelConfig(
    name="bytes-of-12b",
    pattern="M" * 28 + "*" * 6,
    hidden_size=64,
    vocab_size=1024,
    mamba=MambaConfig(heads=128, head_dim=80, state_size=128, groups=8, conv_kernel=4, chunk_size=128),
    attention=AttentionConfig(heads=8, kv_heads=8, head_dim=128),
    mlp=None,
    moe=None,
)


def measure(repeats: int) -> dict[str, Any]:
    model = random_model(SHAPE, dtype=torch.bfloat16)
    pages = {"slots": 4, "page_size": 16, "pages": TOKENS // 16 + 20}
    memory = {"state_dtype": torch.float16, "host_bytes": 2 * 2**30, "checkpoints": 0}
    config = EngineConfig(**pages, **memory, max_context=TOKENS + 1024)
    with Engine(model, config) as home, Engine(model, config) as away:

        def fill() -> None:
            session, pools = home.loop.open("moves"), home.loop.runner.memory
            home.loop.append(session, [number % 1000 for number in range(TOKENS)])
            assert home.loop.memory.secure(session, TOKENS, iter(()))
            for pool in (pools.ssm_VMHPN, pools.keys_ANKZD, pools.values_ANKZD):
                pool.view(torch.uint8).random_(0, 256)
            session.computed = TOKENS
            home.loop.park(session)

        home._call(fill)
        ends, seconds, processor, sent = [home, away], [], [], 0
        for _ in range(repeats + 2):
            began, used = time.perf_counter(), time.process_time()
            sent = _move(ends[0], ends[1], "moves")
            seconds.append(time.perf_counter() - began)
            processor.append(time.process_time() - used)
            ends.reverse()
    return {
        "bytes": sent,
        "seconds": [round(each, 3) for each in seconds[2:]],  # the first two take host memory
        "processor_seconds": [round(each, 3) for each in processor[2:]],
        "median_seconds": statistics.median(seconds[2:]),
        "median_processor_seconds": statistics.median(processor[2:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    command = {"command": "python -m tests.engine.move_bytes " + " ".join(sys.argv[1:])}
    report = machine() | command | measure(given.repeats)
    print(json.dumps(report, indent=1))
    if given.out:
        given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
