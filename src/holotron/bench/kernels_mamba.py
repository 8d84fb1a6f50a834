"""Times of the Mamba-2 kernels at the real shapes of holotron-12b.

Shapes: T packed tokens, S sessions, H heads, P head dim, N state size, G groups, C conv channels, K kernel width.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.bench.kernels import Case
from holotron.ops.packing import Packing
from holotron.ops.triton.conv import CONV_CONFIGS, causal_conv_
from holotron.ops.triton.mamba import STEP_CONFIGS, mamba_step_
from holotron.ops.triton.scan import SCAN_CONFIGS, SPLIT_CONFIGS, ssd_scan_

HEADS, HEAD_DIM, STATE, GROUPS, KERNEL = 128, 80, 128, 8, 4
INNER, SHARED = HEADS * HEAD_DIM, GROUPS * STATE
CHANNELS = INNER + 2 * SHARED
LAYERS, LAYER = 2, 1  # of the pools: enough for slots that do not lie side by side
SESSIONS = 100
CHUNK = 64  # what the scan's arithmetic is counted for, in all configurations
BATCHES = [(2368,), (2368,) * 4]
PEAK = (4.3e12, 790e12)  # what one H200 reaches in copies and in large products


def cases(device: torch.device) -> Iterator[Case]:
    for part in (_scans, _convs, _steps):
        yield from part(device)


def _scans(device: torch.device) -> Iterator[Case]:
    for lengths in BATCHES:
        packing = Packing(lengths, device)
        tokens, sequences = packing.tokens, packing.sequences
        xBC_TC = F.silu(_draw(tokens, CHANNELS, device=device))
        x, B, C = xBC_TC.split([INNER, SHARED, SHARED], dim=-1)
        grouped = (GROUPS, STATE)
        inputs = (
            x.unflatten(-1, (HEADS, HEAD_DIM)),
            _projected(tokens, device)[-1],
            torch.linspace(1, 16, HEADS, device=device).log(),
            B.unflatten(-1, grouped),
            C.unflatten(-1, grouped),
            torch.ones(HEADS, device=device),
            torch.full((HEADS,), -3.0, device=device),
        )
        slots = _slots(sequences, device)
        moved = tokens * 2 * (2 * INNER + 2 * SHARED + HEADS)
        arithmetic = 2.0 * tokens * HEADS * (CHUNK * STATE + CHUNK * HEAD_DIM + 2 * HEAD_DIM * STATE)
        for dtype in (torch.float32, torch.float16):
            pool = _pool(sequences + 1, HEADS, HEAD_DIM, STATE, dtype=dtype, device=device)
            states = 2 * sequences * INNER * STATE * dtype.itemsize
            scan = partial(ssd_scan_, *inputs, packing, CHUNK, pool, slots)
            runs = [(config, partial(scan, config=config)) for config in SPLIT_CONFIGS]
            for config, run in [*runs, *((config, partial(scan, config=config)) for config in SCAN_CONFIGS)]:
                yield Case("scan", f"{lengths} {dtype}", str(config), run, moved + states, arithmetic)


def _convs(device: torch.device) -> Iterator[Case]:
    weight, bias = _draw(CHANNELS, KERNEL, device=device), _draw(CHANNELS, device=device)
    for lengths in BATCHES:
        packing = Packing(lengths, device)
        _, x_TC, _ = _projected(packing.tokens, device)
        pool = _pool(packing.sequences + 1, CHANNELS, KERNEL - 1, dtype=torch.bfloat16, device=device)
        slots = _slots(packing.sequences, device)
        for config in CONV_CONFIGS:
            run = partial(causal_conv_, x_TC, weight, bias, packing, pool, slots, config=config)
            yield Case("conv", f"{lengths}", str(config), run, packing.tokens * CHANNELS * 4.0)


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
            yield Case("step", f"{SESSIONS} {dtype}", str(config), run, moved)


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
