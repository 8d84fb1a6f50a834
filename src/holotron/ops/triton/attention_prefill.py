"""Attention of new tokens over their sessions' pages: pages are gathered into one piece, library kernels do the rest.

Where sequences are short, launches cost more than the attention: those go into one launch of the kernel of our own.

Shapes: T packed tokens, L new tokens of a sequence, E entries it attends to, H query heads, K key/value heads, D head
dim, N pages, Z tokens per page, M pages per sequence at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from holotron.ops.packing import Packing
from holotron.ops.triton.attention_flash import PrefillTuning, paged_flash_prefill
from holotron.ops.triton.attention_library import WAYS, Way, working_way
from holotron.ops.triton.pages import gather_pages

# Sequences of at most so many new tokens and entries are short, whatever else is in the batch.
SHORT_NEW, SHORT_ENTRIES = 512, 4096
SHORT_TUNING = PrefillTuning(rows=64, num_warps=4)


def paged_prefill_attention(
    q_THD: Tensor,
    k_pages_NKZD: Tensor,
    v_pages_NKZD: Tensor,
    page_table_SM: Tensor,
    kv_lengths: Sequence[int],
    packing: Packing,
    *,
    way: str | None = None,
) -> Tensor:
    """Each new token attends to its session's entries up to itself.

    kv_lengths counts the entries of each session, the new tokens (already written) included; it lives on the host,
    so that nothing waits for the device. `way` names one of attention_library's; without it the best that works.
    """
    shape = q_THD.shape[1], k_pages_NKZD.shape[1], q_THD.shape[2]
    chosen = way or working_way(q_THD.device, q_THD.dtype, *shape)
    pages = k_pages_NKZD, v_pages_NKZD, page_table_SM
    flash = partial(paged_flash_prefill, q_THD, *pages, kv_lengths, packing)
    if chosen is None:
        return flash()
    lengths = list(zip(packing.lengths, kv_lengths, strict=True))
    short = () if way or q_THD.shape[2] & (q_THD.shape[2] - 1) else _short(lengths)
    if len(short) == len(lengths):
        return flash(tuning=SHORT_TUNING)
    outputs = []
    for sequence, (new, entries) in enumerate(lengths):
        if new and sequence not in short:
            row_M, rows = page_table_SM[sequence], slice(packing.starts[sequence], packing.starts[sequence] + new)
            k_KED, v_KED = (gather_pages(each, row_M, entries, dtype=q_THD.dtype) for each in pages[:2])
            outputs.append((rows, attend(q_THD[rows], k_KED, v_KED, WAYS[chosen])))
    if not short and len(outputs) == 1:
        return outputs[0][1]
    out_THD = flash(tuning=SHORT_TUNING, sequences=tuple(short))
    for rows, output in outputs:
        out_THD[rows] = output
    return out_THD


def _short(lengths: Sequence[tuple[int, int]]) -> list[int]:
    """The numbers of sequences that are."""
    return [number for number, (new, entries) in enumerate(lengths) if new <= SHORT_NEW and entries <= SHORT_ENTRIES]


def attend(q_LHD: Tensor, k_KED: Tensor, v_KED: Tensor, way: Way) -> Tensor:
    """One sequence whose last L entries are the queries' own."""
    new, entries = q_LHD.shape[0], k_KED.shape[1]
    cut = (entries - new) // way.history_step * way.history_step if way.history is not None else 0
    q_HLD = q_LHD.transpose(0, 1)
    y_HLD, lse_HL = way.rest(q_HLD, k_KED[:, cut:], v_KED[:, cut:], True)
    if cut == 0 or way.history is None:
        return y_HLD.transpose(0, 1)
    padding = -new % way.query_step
    padded_HLD = F.pad(q_LHD, (0, 0, 0, 0, 0, padding)).transpose(0, 1) if padding else q_HLD
    past_HLD, past_lse_HL = way.history(padded_HLD, k_KED[:, :cut], v_KED[:, :cut], False)
    return merge(past_HLD[:, :new], past_lse_HL[:, :new], y_HLD, lse_HL)


def merge(a_HLD: Tensor, a_lse_HL: Tensor, b_HLD: Tensor, b_lse_HL: Tensor) -> Tensor:
    """Attention over the entries of both parts together, [L, H, D], from that over each and its logsumexp."""
    heads, new, head_dim = a_HLD.shape
    out_LHD = torch.empty(new, heads, head_dim, dtype=a_HLD.dtype, device=a_HLD.device)
    _merge_kernel[(new,)](
        a_HLD,
        a_lse_HL,
        b_HLD,
        b_lse_HL,
        out_LHD,
        *a_HLD.stride(),
        *a_lse_HL.stride(),
        *b_HLD.stride(),
        *b_lse_HL.stride(),
        HEADS=heads,
        HEADS_PAD=triton.next_power_of_2(heads),
        D=head_dim,
        D_PAD=triton.next_power_of_2(head_dim),
        num_warps=8,
    )
    return out_LHD


@triton.jit
def _merge_kernel(
    a_ptr,
    a_lse_ptr,
    b_ptr,
    b_lse_ptr,
    out_ptr,
    a_stride_h,
    a_stride_l,
    a_stride_d,
    a_lse_stride_h,
    a_lse_stride_l,
    b_stride_h,
    b_stride_l,
    b_stride_d,
    b_lse_stride_h,
    b_lse_stride_l,
    HEADS: tl.constexpr,
    HEADS_PAD: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, HEADS_PAD)
    d = tl.arange(0, D_PAD)
    real = h < HEADS
    mask = real[:, None] & (d < D)[None, :]
    a_lse_H = tl.load(a_lse_ptr + h * a_lse_stride_h + token * a_lse_stride_l, mask=real, other=0.0)
    b_lse_H = tl.load(b_lse_ptr + h * b_lse_stride_h + token * b_lse_stride_l, mask=real, other=0.0)
    a_offsets = h[:, None] * a_stride_h + token * a_stride_l + d[None, :] * a_stride_d
    b_offsets = h[:, None] * b_stride_h + token * b_stride_l + d[None, :] * b_stride_d
    a_HD = tl.load(a_ptr + a_offsets, mask=mask, other=0.0).to(tl.float32)
    b_HD = tl.load(b_ptr + b_offsets, mask=mask, other=0.0).to(tl.float32)
    # Each weight from its own exponential: the smaller of two very unequal ones keeps its digits.
    a_weight_H = 1.0 / (1.0 + tl.exp(b_lse_H - a_lse_H))
    b_weight_H = 1.0 / (1.0 + tl.exp(a_lse_H - b_lse_H))
    y_HD = a_HD * a_weight_H[:, None] + b_HD * b_weight_H[:, None]
    tl.store(out_ptr + (token * HEADS + h[:, None]) * D + d[None, :], y_HD.to(out_ptr.dtype.element_ty), mask=mask)
