"""What all measurements need: work for the device, when it is done, where its time goes, quantiles."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
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


def write_profile(path: Path, run: Callable[[], object], *, on_gpu: bool) -> None:
    """Write a table of what takes the device's time while something runs, from torch's profiler."""
    activity = torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profiler:
        run()
        time_when_idle()
    path.parent.mkdir(parents=True, exist_ok=True)
    order = "cuda_time_total" if on_gpu else "cpu_time_total"
    path.write_text(profiler.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=110))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so many of them do not exceed; 0 where there are none."""
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
