"""CUDA graphs in a process whose other threads use the device, too: an engine that plays while a trainer learns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch

# Whoever waits for the whole device breaks a recording that another thread is at.
_turn = threading.RLock()

Result = TypeVar("Result")


def record(compute: Callable[[], Result], warm_up: Callable[[], object]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """What is launched by `compute` as a graph, and what it returned. Threads take turns.

    warm_up: runs first, outside of the graph: it has kernels compiled and makes what is made once.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        warm_up()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with _turn, torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = compute()
    return graph, result


def wait_for_device(device: torch.device) -> None:
    """Until all threads' work on it is done, and no graph is being recorded."""
    if device.type == "cuda":
        with _turn:
            torch.cuda.synchronize(device)
