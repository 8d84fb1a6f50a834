"""What all measurements need: work for the device, when it is done, memory, quantiles."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from holotron.model.config import ModelConfig


def random_tokens(model: ModelConfig, count: int, draw: random.Random) -> list[int]:
    """Tokens of text: none stands for an image."""
    tokens = draw.choices(range(min(50_000, model.vocab_size)), k=count)
    image_token = model.vision.image_token_id if model.vision else None
    return [token if token != image_token else 0 for token in tokens]


def time_when_idle() -> float:
    """The clock's seconds once the device has done all it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def process_memory(pid: int) -> int:
    """Bytes of a process, shared pages divided among those who share them; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many of them do not exceed; 0 where there are none."""
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
