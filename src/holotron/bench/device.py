"""What a device is given in a measurement, and when it is done."""

from __future__ import annotations

import random
import time

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
