"""Attention of new tokens over their sessions' pages in one Triton kernel, read in place: one launch for all of them.

Shapes: T packed tokens, L new tokens of a sequence, E entries it attends to, H query heads, K key/value heads, D head
dim, N pages, Z tokens per page, M pages per sequence at most, Q tiles of queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.packing import Packing
from holotron.ops.triton.attention_decode import LOG2_E, block_pages, check_shapes, compute_type, to_compute
from holotron.ops.triton.tables import to_device


@dataclass(frozen=True)
class PrefillTuning:
    """How the work is cut: rows of queries and of entries per tile, warps per program, depth of the load pipeline."""

    rows: int = 128
    block: int = 64
    num_warps: int = 8
    num_stages: int = 3


def paged_flash_prefill(
    q_THD: Tensor,
    k_pages_NKZD: Tensor,
    v_pages_NKZD: Tensor,
    page_table_SM: Tensor,
    kv_lengths: Sequence[int],
    packing: Packing,
    *,
    tuning: PrefillTuning | None = None,
    sequences: tuple[int, ...] | None = None,
) -> Tensor:
    """Each new token attends to its session's entries up to itself; see attention_prefill for the other way.

    sequences: those that are wanted, by number; the rows of others hold anything.
    """
    heads, head_dim = q_THD.shape[1:]
    kv_heads, page_size = k_pages_NKZD.shape[1], k_pages_NKZD.shape[2]
    check_shapes(q_THD, k_pages_NKZD, v_pages_NKZD)
    tuning = tuning or PrefillTuning()
    out_THD = torch.empty(q_THD.shape, dtype=q_THD.dtype, device=q_THD.device)
    tiles_Q5 = query_tiles(packing, tuple(kv_lengths), tuning.rows, sequences)
    if len(tiles_Q5):
        _flash_kernel[(len(tiles_Q5), heads)](
            q_THD,
            k_pages_NKZD,
            v_pages_NKZD,
            page_table_SM,
            out_THD,
            tiles_Q5,
            LOG2_E / math.sqrt(head_dim),
            page_table_SM.stride(0),
            *q_THD.stride()[:2],
            *k_pages_NKZD.stride()[:3],
            *v_pages_NKZD.stride()[:3],
            *out_THD.stride()[:2],
            GROUP=heads // kv_heads,
            D=head_dim,
            Z=page_size,
            ROWS=tuning.rows,
            BLOCK=tuning.block,
            COMPUTE=compute_type(q_THD, k_pages_NKZD),
            num_warps=tuning.num_warps,
            num_stages=tuning.num_stages,
        )
    return out_THD


@lru_cache(maxsize=8)
def query_tiles(
    packing: Packing, kv_lengths: tuple[int, ...], rows: int, sequences: tuple[int, ...] | None = None
) -> Tensor:
    """A row (sequence, its first token, its new tokens, its entries, first of the tile's) per tile, the longest first:
    the short ones fill the last wave."""
    new_S, entries_S = np.array(packing.lengths), np.array(kv_lengths)
    counts_S = -(-new_S // rows)
    if sequences is not None:
        counts_S = np.where(np.isin(np.arange(len(new_S)), sequences), counts_S, 0)
    sequence_Q = np.repeat(np.arange(len(new_S)), counts_S)
    first_Q = (np.arange(len(sequence_Q)) - (counts_S.cumsum() - counts_S)[sequence_Q]) * rows
    starts_S = np.array(packing.starts[:-1])
    columns = sequence_Q, starts_S[sequence_Q], new_S[sequence_Q], entries_S[sequence_Q], first_Q
    order = np.argsort((new_S - entries_S)[sequence_Q] - first_Q, kind="stable")
    return to_device(np.stack(columns, axis=1)[order], packing.device)


# Tables may start at any of their entries: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["table_ptr", "tiles_ptr"])
def _flash_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    out_ptr,
    tiles_ptr,
    score_scale,
    table_stride_s,
    q_stride_t,
    q_stride_h,
    k_stride_n,
    k_stride_k,
    k_stride_z,
    v_stride_n,
    v_stride_k,
    v_stride_z,
    out_stride_t,
    out_stride_h,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    Z: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    tiles_ptr += tl.program_id(0) * 5
    sequence = tl.load(tiles_ptr).to(tl.int64)
    start = tl.load(tiles_ptr + 1).to(tl.int64)
    new = tl.load(tiles_ptr + 2)
    entries = tl.load(tiles_ptr + 3)
    first = tl.load(tiles_ptr + 4)
    head = tl.program_id(1)
    table_ptr += sequence * table_stride_s
    k_ptr += head // GROUP * k_stride_k
    v_ptr += head // GROUP * v_stride_k
    row = first + tl.arange(0, ROWS)
    real = row < new
    d = tl.arange(0, D)
    row_64 = start + row
    q_offsets = row_64[:, None] * q_stride_t + head * q_stride_h + d[None, :]
    q_RD = to_compute(tl.load(q_ptr + q_offsets, mask=real[:, None], other=0.0), COMPUTE)

    top_R = tl.full((ROWS,), float("-inf"), tl.float32)
    sum_R = tl.zeros((ROWS,), tl.float32)
    acc_RD = tl.zeros((ROWS, D), tl.float32)
    past = entries - new
    whole = (past + first + 1) // BLOCK  # blocks that every row of the tile sees whole
    end = tl.cdiv(tl.minimum(past + first + ROWS, entries), BLOCK)

    page = block_pages(table_ptr, 0, entries, BLOCK, Z)
    for block in range(whole):
        next_page = block_pages(table_ptr, block + 1, entries, BLOCK, Z)
        z = (block * BLOCK + tl.arange(0, BLOCK)) % Z
        k_rows = k_ptr + page * k_stride_n + z * k_stride_z
        v_rows = v_ptr + page * v_stride_n + z * v_stride_z
        k_BD = tl.load(k_rows[:, None] + d[None, :]).to(COMPUTE)
        v_BD = tl.load(v_rows[:, None] + d[None, :]).to(COMPUTE)
        scores_RB = tl.dot(q_RD, tl.trans(k_BD), input_precision="ieee")
        # Scaling is folded into the exponent: one multiply-add per score.
        new_top_R = tl.maximum(top_R, tl.max(scores_RB, 1) * score_scale)
        weights_RB = tl.exp2(scores_RB * score_scale - new_top_R[:, None])
        shrink_R = tl.exp2(top_R - new_top_R)
        sum_R = sum_R * shrink_R + tl.sum(weights_RB, 1)
        acc_RD = tl.dot(weights_RB.to(COMPUTE), v_BD, acc_RD * shrink_R[:, None], input_precision="ieee")
        top_R = new_top_R
        page = next_page

    for block in range(whole, end):
        page = block_pages(table_ptr, block, entries, BLOCK, Z)
        n = block * BLOCK + tl.arange(0, BLOCK)
        k_rows = k_ptr + page * k_stride_n + (n % Z) * k_stride_z
        v_rows = v_ptr + page * v_stride_n + (n % Z) * v_stride_z
        k_BD = tl.load(k_rows[:, None] + d[None, :], mask=(n < entries)[:, None], other=0.0).to(COMPUTE)
        v_BD = tl.load(v_rows[:, None] + d[None, :], mask=(n < entries)[:, None], other=0.0).to(COMPUTE)
        scores_RB = tl.dot(q_RD, tl.trans(k_BD), input_precision="ieee") * score_scale
        scores_RB = tl.where(n[None, :] <= past + row[:, None], scores_RB, float("-inf"))
        # Every row has seen entry 0 by now, so that its maximum is finite.
        new_top_R = tl.maximum(top_R, tl.max(scores_RB, 1))
        weights_RB = tl.exp2(scores_RB - new_top_R[:, None])
        shrink_R = tl.exp2(top_R - new_top_R)
        sum_R = sum_R * shrink_R + tl.sum(weights_RB, 1)
        acc_RD = tl.dot(weights_RB.to(COMPUTE), v_BD, acc_RD * shrink_R[:, None], input_precision="ieee")
        top_R = new_top_R

    y_RD = acc_RD * (1.0 / sum_R)[:, None]
    out_offsets = row_64[:, None] * out_stride_t + head * out_stride_h + d[None, :]
    tl.store(out_ptr + out_offsets, y_RD.to(out_ptr.dtype.element_ty), mask=real[:, None])
