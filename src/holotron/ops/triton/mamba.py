"""One token per session through the recurrent part of a Mamba-2 mixer, as one kernel.

A program takes one group of heads of one session: it convolves the group's channels, then walks over the state in
tiles, each read, advanced and written once, and last normalises what it collected. Nothing waits for the host and
nothing is allocated but the output, so the step can be recorded in a CUDA graph. Such a graph runs a fixed batch:
rows beyond the real ones may all point to one scratch slot.

Shapes: S sessions, I inner width, C conv channels, K kernel width, J = K - 1 carried inputs, V pool slots, H heads,
P head dim, N state size, M tiles of P in a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class StepConfig:
    """Rows of the state in a tile, channels convolved at once, and what Triton is told.

    A batch is fastest when all its programs run at once: registers decide how many fit a multiprocessor.
    """

    tile_p: int = 16
    block_c: int = 256
    num_warps: int = 4
    num_stages: int = 2
    max_registers: int | None = None


STEP_CONFIGS = [
    *(StepConfig(16, 256, 4, stages, 72) for stages in (2, 3, 1, 4)),
    StepConfig(16, 256, 4, 3),
    *(StepConfig(16, 256, 2, stages) for stages in (1, 2, 3, 4)),
    StepConfig(16, 128, 1, 3),
    *(StepConfig(32, 256, 4, stages) for stages in (2, 3)),
    StepConfig(32, 256, 8, 2),
    *(StepConfig(128, 256, 8, stages) for stages in (1, 2)),
]


def mamba_step_(
    z_SI: Tensor,
    xBC_SC: Tensor,
    dt_SH: Tensor,
    conv_weight_CK: Tensor,
    conv_bias_C: Tensor | None,
    A_log_H: Tensor,
    D_H: Tensor,
    dt_bias_H: Tensor,
    norm_weight_I: Tensor,
    conv_pool_VCJ: Tensor,
    ssm_pool_VHPN: Tensor,
    slots_S: Tensor,
    *,
    groups: int,
    eps: float,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    out: Tensor | None = None,
    config: StepConfig | None = None,
) -> Tensor:
    """The plain mamba_step_."""
    config = config or STEP_CONFIGS[0]
    for tensor in (z_SI, xBC_SC, dt_SH, conv_weight_CK, conv_pool_VCJ, ssm_pool_VHPN):
        assert tensor.stride(-1) == 1, "the last axis must be contiguous"
    heads, head_dim, state_size = ssm_pool_VHPN.shape[1:]
    if out is None:
        out = torch.empty(z_SI.shape, dtype=z_SI.dtype, device=z_SI.device)
    tile_p = min(config.tile_p, triton.next_power_of_2(head_dim))
    tiles = triton.cdiv(head_dim, tile_p)
    kernel, heads_per_group = conv_weight_CK.shape[1], heads // groups
    if len(slots_S) == 0:
        return out
    _step_kernel[(groups, len(slots_S))](
        z_SI,
        xBC_SC,
        dt_SH,
        conv_weight_CK,
        conv_bias_C,
        A_log_H,
        D_H,
        dt_bias_H,
        norm_weight_I,
        conv_pool_VCJ,
        ssm_pool_VHPN,
        slots_S,
        out,
        eps,
        *dt_limit,
        z_SI.stride(0),
        xBC_SC.stride(0),
        dt_SH.stride(0),
        conv_weight_CK.stride(0),
        *conv_pool_VCJ.stride()[:2],
        *ssm_pool_VHPN.stride()[:3],
        out.stride(0),
        LIMITED=dt_limit != (0.0, float("inf")),
        GROUPS=groups,
        HEADS=heads_per_group,
        P=head_dim,
        N=state_size,
        K=kernel,
        TILES=tiles,
        TILE_P=tile_p,
        BLOCK_M=triton.next_power_of_2(heads_per_group * tiles),
        BLOCK_N=triton.next_power_of_2(state_size),
        BLOCK_K=triton.next_power_of_2(kernel),
        BLOCK_C=min(config.block_c, triton.next_power_of_2(heads_per_group * head_dim)),
        STAGES=config.num_stages,
        num_warps=config.num_warps,
        maxnreg=config.max_registers,
    )
    return out


@triton.jit
def softplus(x):
    """log(1 + exp(x)) to the last bits, which the device's fast logarithm loses where the result is small."""
    small = tl.exp(-tl.abs(x))
    s = small / (2 + small)  # log(1 + e) = 2 artanh(e / (2 + e)), with s at most 1/3
    square = s * s
    series = 1.0 / 15
    series = series * square + 1.0 / 13
    series = series * square + 1.0 / 11
    series = series * square + 1.0 / 9
    series = series * square + 1.0 / 7
    series = series * square + 1.0 / 5
    series = series * square + 1.0 / 3
    series = series * square + 1.0
    return tl.maximum(x, 0.0) + 2 * s * series


@triton.jit
def _conv_step(
    x_ptr, weight_ptr, bias_ptr, pool_ptr, c_C, inside_C, weight_per_channel, pool_per_channel, K, BLOCK_K: tl.constexpr
):
    """Convolve one token of the channels c_C and move their carried inputs on by one."""
    k_K = tl.arange(0, BLOCK_K)
    pool_CK = pool_ptr + c_C[:, None] * pool_per_channel + k_K[None, :]
    carried_CK = inside_C[:, None] & (k_K < K - 1)[None, :]
    old = tl.load(pool_CK, mask=carried_CK, other=0).to(x_ptr.dtype.element_ty)
    new = tl.load(x_ptr + c_C, mask=inside_C, other=0)
    window = tl.where((k_K == K - 1)[None, :], new[:, None], old)
    weight_CK = weight_ptr + c_C[:, None] * weight_per_channel + k_K[None, :]
    weight = tl.load(weight_CK, mask=inside_C[:, None] & (k_K < K)[None, :], other=0)
    y_C = tl.sum(window.to(tl.float32) * weight.to(tl.float32), 1)
    if bias_ptr is not None:
        y_C += tl.load(bias_ptr + c_C, mask=inside_C, other=0).to(tl.float32)
    # The same value may be read by several threads: all must have it before one replaces it.
    tl.debug_barrier()
    moved_CK = inside_C[:, None] & (k_K >= 1)[None, :] & (k_K < K)[None, :]
    tl.store(pool_CK - 1, window.to(pool_ptr.dtype.element_ty), mask=moved_CK)
    return (y_C / (1 + tl.exp(-y_C))).to(x_ptr.dtype.element_ty)


# Tables may start at any of their entries: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["slots_ptr"])
def _step_kernel(
    z_ptr,
    xBC_ptr,
    dt_ptr,
    conv_weight_ptr,
    conv_bias_ptr,
    A_log_ptr,
    D_ptr,
    dt_bias_ptr,
    norm_weight_ptr,
    conv_pool_ptr,
    ssm_pool_ptr,
    slots_ptr,
    out_ptr,
    eps,
    dt_low,
    dt_high,
    z_per_row,
    xBC_per_row,
    dt_per_row,
    weight_per_channel,
    conv_per_slot,
    conv_per_channel,
    ssm_per_slot,
    ssm_per_head,
    ssm_per_p,
    out_per_row,
    LIMITED: tl.constexpr,
    GROUPS: tl.constexpr,
    HEADS: tl.constexpr,
    P: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    TILES: tl.constexpr,
    TILE_P: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr,
):
    group = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    slot = tl.load(slots_ptr + row).to(tl.int64)
    WIDTH: tl.constexpr = HEADS * P
    xBC_ptr += row * xBC_per_row
    conv_pool_ptr += slot * conv_per_slot
    out_ptr += row * out_per_row + group * WIDTH
    n_N = tl.arange(0, BLOCK_N)
    B_channels = GROUPS * WIDTH + group * N + n_N
    B_N = _conv_step(
        xBC_ptr, conv_weight_ptr, conv_bias_ptr, conv_pool_ptr, B_channels, n_N < N, weight_per_channel,
        conv_per_channel, K, BLOCK_K,
    ).to(tl.float32)  # fmt: skip
    C_N = _conv_step(
        xBC_ptr, conv_weight_ptr, conv_bias_ptr, conv_pool_ptr, B_channels + GROUPS * N, n_N < N, weight_per_channel,
        conv_per_channel, K, BLOCK_K,
    ).to(tl.float32)  # fmt: skip
    # The output's own row keeps the convolved x until the end.
    for first in range(0, WIDTH, BLOCK_C):
        c_C = first + tl.arange(0, BLOCK_C)
        x_C = _conv_step(
            xBC_ptr, conv_weight_ptr, conv_bias_ptr, conv_pool_ptr, group * WIDTH + c_C, c_C < WIDTH,
            weight_per_channel, conv_per_channel, K, BLOCK_K,
        )  # fmt: skip
        tl.store(out_ptr + c_C, x_C, mask=c_C < WIDTH)
    tl.debug_barrier()

    p_P = tl.arange(0, TILE_P)
    m_M = tl.arange(0, BLOCK_M)
    y_MP = tl.zeros([BLOCK_M, TILE_P], dtype=tl.float32)
    ssm_pool_ptr += slot * ssm_per_slot + group * HEADS * ssm_per_head
    for tile in tl.range(0, HEADS * TILES, num_stages=STAGES):
        head = tile // TILES
        place_P = (tile % TILES) * TILE_P + p_P
        inside_PN = (place_P < P)[:, None] & (n_N < N)[None, :]
        state_ptr = ssm_pool_ptr + head * ssm_per_head + place_P[:, None] * ssm_per_p + n_N[None, :]
        state_PN = tl.load(state_ptr, mask=inside_PN, other=0).to(tl.float32)
        x_P = tl.load(out_ptr + head * P + place_P, mask=place_P < P, other=0).to(tl.float32)
        h = group * HEADS + head
        dt = softplus(tl.load(dt_ptr + row * dt_per_row + h).to(tl.float32) + tl.load(dt_bias_ptr + h))
        if LIMITED:
            dt = tl.minimum(tl.maximum(dt, dt_low), dt_high)
        kept = tl.exp(-dt * tl.exp(tl.load(A_log_ptr + h).to(tl.float32)))
        state_PN = state_PN * kept + (dt * x_P)[:, None] * B_N[None, :]
        tl.store(state_ptr, state_PN.to(ssm_pool_ptr.dtype.element_ty), mask=inside_PN)
        y_P = tl.sum(state_PN * C_N[None, :], 1) + tl.load(D_ptr + h) * x_P
        y_MP = tl.where((m_M == tile)[:, None], y_P[None, :], y_MP)

    # Rounded once before the gate, as the plain version does.
    y_MP = y_MP.to(xBC_ptr.dtype.element_ty).to(tl.float32)
    place_MP = (m_M % TILES)[:, None] * TILE_P + p_P[None, :]
    i_MP = (m_M // TILES)[:, None] * P + place_MP
    inside_MP = (m_M < HEADS * TILES)[:, None] & (place_MP < P)
    z_MP = tl.load(z_ptr + row * z_per_row + group * WIDTH + i_MP, mask=inside_MP, other=0).to(tl.float32)
    weight_MP = tl.load(norm_weight_ptr + group * WIDTH + i_MP, mask=inside_MP, other=0).to(tl.float32)
    y_MP = y_MP * (z_MP / (1 + tl.exp(-z_MP)))
    y_MP = y_MP * tl.rsqrt(tl.sum(y_MP * y_MP) / WIDTH + eps) * weight_MP
    tl.debug_barrier()
    tl.store(out_ptr + i_MP, y_MP.to(out_ptr.dtype.element_ty), mask=inside_MP)
