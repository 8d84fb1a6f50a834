"""CUDA graphs in a process whose other threads use the device, too: an engine that plays while a trainer learns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Whoever waits for the whole device breaks a recording that another thread is at.
_turn = threading.RLock()


@contextmanager
def recorded(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """What is launched inside becomes the graph. Threads take turns."""
    with _turn, torch.cuda.graph(graph, capture_error_mode="thread_local"):
        yield


def wait_for_device(device: torch.device) -> None:
    """Until all threads' work on it is done, and no graph is being recorded."""
    if device.type == "cuda":
        with _turn:
            torch.cuda.synchronize(device)
