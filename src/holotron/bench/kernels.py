"""Times of kernels at the real shapes of models, and their share of what the device could do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from holotron.bench.measuring import time_when_idle

PARTS = ("mamba", "attention", "experts", "linear")  # modules kernels_…: they import Triton, which is not everywhere

Peak = tuple[float, float]  # bytes and operations per second that a kernel is held against


@dataclass(frozen=True)
class Case:
    """One kernel, shape and configuration, and the bytes and operations it cannot do without. once: its first call."""

    kernel: str
    shape: str
    config: str
    run: Callable[[], object]
    nbytes: float = 0.0
    flops: float = 0.0
    once: bool = False


@torch.no_grad()
def rows(device: str = "cuda", only: str | None = None) -> Iterator[dict[str, Any]]:
    """One row per case, each as soon as it is known."""
    for name in PARTS if only is None else (only,):
        part = import_module(f"holotron.bench.kernels_{name}")
        for case in part.cases(torch.device(device)):
            yield measure(case, part.PEAK)


def measure(case: Case, peak: Peak) -> dict[str, Any]:
    """`share_of_peak` is the time that the bytes, or the arithmetic where that takes longer, need at peak rates, over
    the time measured. A case that fails says why; the others still count.
    """
    row: dict[str, Any] = {"kernel": case.kernel, "shape": case.shape, "config": case.config}
    try:
        ms = _once(case.run) if case.once else _median(case.run)
    except Exception as error:
        return row | {"error": f"{type(error).__name__}: {error}"[:400]}
    row["ms"] = round(ms, 5)
    if case.once:
        return row
    least = max(case.nbytes / peak[0], case.flops / peak[1])
    rates = {"gbytes_per_s": round(case.nbytes / ms / 1e6, 1), "tflops": round(case.flops / ms / 1e9, 1)}
    return row | rates | {"share_of_peak": round(least / ms * 1e3, 3)}


def _median(run: Callable[[], object]) -> float:
    from triton.testing import do_bench

    return float(do_bench(run, warmup=50, rep=200, return_mode="median"))


def _once(run: Callable[[], object]) -> float:
    started = time_when_idle()
    run()
    return 1e3 * (time_when_idle() - started)
