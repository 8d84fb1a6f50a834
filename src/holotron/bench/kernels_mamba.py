"""Times of the Mamba-2 kernels at the real shapes of holotron-12b.

Shapes: T packed tokens, S sessions, H heads, P head dim, N state size, G groups, C conv channels, K kernel width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from triton.testing import do_bench

from holotron.ops.packing import Packing
from holotron.ops.triton.conv import CONV_CONFIGS, causal_conv_
from holotron.ops.triton.mamba import STEP_CONFIGS, mamba_step_
from holotron.ops.triton.scan import SCAN_CONFIGS, ssd_scan_

HEADS, HEAD_DIM, STATE, GROUPS, KERNEL = 128, 80, 128, 8, 4
INNER, SHARED = HEADS * HEAD_DIM, GROUPS * STATE
CHANNELS = INNER + 2 * SHARED
LAYERS, LAYER = 2, 1  # of the pools: enough for slots that do not lie side by side
SESSIONS = 100
CHUNK = 64  # what the scan's arithmetic is counted for, whatever a configuration cuts
BATCHES = [(2368,), (2368,) * 4]
BYTES_PER_S, FLOP_PER_S = 4.3e12, 790e12  # what one H200 reaches in copies and in large products


@torch.no_grad()
def rows(
    device: str = "cuda", bytes_per_s: float = BYTES_PER_S, flop_per_s: float = FLOP_PER_S
) -> Iterator[dict[str, Any]]:
    """One row per kernel, shape and configuration, each as soon as it is known; a variant that fails says why.

    `share_of_peak` is the time that the row's bytes, or its arithmetic where that takes longer, would need at the
    given rates, over the time measured.
    """
    for cases in (_scans, _convs, _steps):
        for kernel, shape, config, run, moved, arithmetic in cases(torch.device(device)):
            yield _row(kernel, shape, config, run, moved, arithmetic, bytes_per_s, flop_per_s)


def _row(
    kernel: str,
    shape: str,
    config: Any,
    run: Callable[[], Tensor],
    moved: float,
    arithmetic: float,
    bytes_per_s: float,
    flop_per_s: float,
) -> dict[str, Any]:
    row: dict[str, Any] = {"kernel": kernel, "shape": shape, "config": str(config)}
    try:
        ms = float(do_bench(run, warmup=20, rep=100, return_mode="median"))
    except Exception as failure:  # whatever it is, the other configurations still count
        return row | {"error": f"{type(failure).__name__}: {failure}"[:300]}
    limit = max(moved / bytes_per_s, arithmetic / flop_per_s)
    rates = {"gbytes_per_s": round(moved / ms / 1e6), "tflops": round(arithmetic / ms / 1e9, 1)}
    return row | {"ms": round(ms, 4)} | rates | {"share_of_peak": round(limit / ms * 1e3, 3)}


Case = tuple[str, str, Any, Callable[[], Tensor], float, float]


def _scans(device: torch.device) -> Iterator[Case]:
    for lengths in BATCHES:
        packing = Packing(lengths, device)
        tokens, sequences = packing.tokens, packing.sequences
        xBC_TC = F.silu(_draw(tokens, CHANNELS, device=device))
        x, B, C = xBC_TC.split([INNER, SHARED, SHARED], dim=-1)
        grouped = (GROUPS, STATE)
        inputs = (
            x.unflatten(-1, (HEADS, HEAD_DIM)),
            F.softplus(_draw(tokens, HEADS, device=device).float() - 3),
            -torch.linspace(1, 16, HEADS, device=device),
            B.unflatten(-1, grouped),
            C.unflatten(-1, grouped),
            torch.ones(HEADS, device=device),
        )
        slots = _slots(sequences, device)
        moved = tokens * (2 * (2 * INNER + 2 * SHARED) + 4 * HEADS)
        arithmetic = 2.0 * tokens * HEADS * (CHUNK * STATE + CHUNK * HEAD_DIM + 2 * HEAD_DIM * STATE)
        for dtype in (torch.float32, torch.float16):
            pool = _pool(sequences + 1, HEADS, HEAD_DIM, STATE, dtype=dtype, device=device)
            states = 2 * sequences * INNER * STATE * dtype.itemsize
            for config in SCAN_CONFIGS if dtype == torch.float32 else SCAN_CONFIGS[:2]:
                run = partial(ssd_scan_, *inputs, packing, CHUNK, pool, slots, config=config)
                yield "scan", f"{lengths} {dtype}", config, run, moved + states, arithmetic


def _convs(device: torch.device) -> Iterator[Case]:
    weight, bias = _draw(CHANNELS, KERNEL, device=device), _draw(CHANNELS, device=device)
    for lengths in BATCHES:
        packing = Packing(lengths, device)
        _, x_TC, _ = _projected(packing.tokens, device)
        pool = _pool(packing.sequences + 1, CHANNELS, KERNEL - 1, dtype=torch.bfloat16, device=device)
        slots = _slots(packing.sequences, device)
        for config in CONV_CONFIGS:
            run = partial(causal_conv_, x_TC, weight, bias, packing, pool, slots, config=config)
            yield "conv", f"{lengths}", config, run, packing.tokens * CHANNELS * 4.0, 0.0


def _steps(device: torch.device) -> Iterator[Case]:
    z_SI, xBC_SC, dt_SH = _projected(SESSIONS, device)
    weights = (
        _draw(CHANNELS, KERNEL, device=device),
        _draw(CHANNELS, device=device),
        torch.linspace(1, 16, HEADS, device=device).log(),
        torch.ones(HEADS, device=device),
        torch.full((HEADS,), -3.0, device=device),
        _draw(INNER, device=device),
    )
    conv_pool = _pool(SESSIONS + 1, CHANNELS, KERNEL - 1, dtype=torch.bfloat16, device=device)
    slots, out = _slots(SESSIONS, device), torch.empty_like(z_SI, memory_format=torch.contiguous_format)
    beside = SESSIONS * 2.0 * (2 * INNER + CHANNELS + HEADS + 2 * CHANNELS * (KERNEL - 1))
    for dtype in (torch.float16, torch.float32):
        ssm_pool = _pool(SESSIONS + 1, HEADS, HEAD_DIM, STATE, dtype=dtype, device=device)
        moved = 2.0 * SESSIONS * INNER * STATE * dtype.itemsize + beside
        for config in STEP_CONFIGS:
            step = partial(mamba_step_, groups=GROUPS, eps=1e-5, out=out, config=config)
            run = partial(step, z_SI, xBC_SC, dt_SH, *weights, conv_pool, ssm_pool, slots)
            yield "step", f"{SESSIONS} {dtype}", config, run, moved, 0.0


def _draw(*shape: int, device: torch.device) -> Tensor:
    return torch.randn(*shape, device=device).bfloat16()


def _projected(count: int, device: torch.device) -> tuple[Tensor, ...]:
    """Gate, conv channels and step sizes: views of one wide tensor, as the mixer's projection leaves them."""
    wide = _draw(count, INNER + CHANNELS + HEADS, device=device)
    return tuple(wide.split([INNER, CHANNELS, HEADS], dim=-1))


def _pool(slots: int, *shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros(slots, LAYERS, *shape, dtype=dtype, device=device)[:, LAYER]


def _slots(count: int, device: torch.device) -> Tensor:
    return torch.randperm(count, device=device) + 1
