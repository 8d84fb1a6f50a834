"""Causal grouped-query attention over packed sequences, with keys and values at hand or in pages.

Shapes: T packed tokens, S sequences, H query heads, K key/value heads, D head dim, N pages, Z tokens per page,
M pages per sequence at most; of images I with P positions each, B images times heads.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.packing import Packing

BLOCK_ROWS = 256


def attention(q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, packing: Packing) -> Tensor:
    """Each token attends to itself and the earlier tokens of its own sequence."""
    outputs = [
        _attend(q_THD[start:end], k_TKD[start:end], v_TKD[start:end])
        for start, end in zip(packing.starts, packing.starts[1:], strict=False)
    ]
    return torch.cat(outputs)


def write_pages(
    k_TKD: Tensor,
    v_TKD: Tensor,
    k_pages_NKZD: Tensor,
    v_pages_NKZD: Tensor,
    places_T: Tensor,
) -> None:
    """Store the keys and values of new tokens, each at page · page size + offset.

    For pages in 8 bits they are clamped to what the format holds.
    """
    page, offset = places_T // k_pages_NKZD.shape[2], places_T % k_pages_NKZD.shape[2]
    k_pages_NKZD[page, :, offset] = _narrow(k_TKD, k_pages_NKZD.dtype)
    v_pages_NKZD[page, :, offset] = _narrow(v_TKD, v_pages_NKZD.dtype)


def paged_attention(
    q_THD: Tensor,
    k_pages_NKZD: Tensor,
    v_pages_NKZD: Tensor,
    page_table_SM: Tensor,
    kv_lengths: Sequence[int],
    packing: Packing,
) -> Tensor:
    """Each new token attends to all that its session's pages hold up to itself.

    kv_lengths counts the entries in each session's pages, the new tokens (already written) included.
    """
    page_size = k_pages_NKZD.shape[2]
    outputs = []
    for sequence, length in enumerate(kv_lengths):
        pages = page_table_SM[sequence, : -(-length // page_size)]
        k_EKD = k_pages_NKZD[pages].transpose(1, 2).flatten(0, 1)[:length].to(q_THD.dtype)
        v_EKD = v_pages_NKZD[pages].transpose(1, 2).flatten(0, 1)[:length].to(q_THD.dtype)
        outputs.append(_attend(q_THD[packing.starts[sequence] : packing.starts[sequence + 1]], k_EKD, v_EKD))
    return torch.cat(outputs)


def paged_step_attention(
    q_SHD: Tensor, k_pages_NKZD: Tensor, v_pages_NKZD: Tensor, page_table_SM: Tensor, kv_lengths_S: Tensor
) -> Tensor:
    """paged_attention for one new token per session, all sessions at once."""
    page_size = k_pages_NKZD.shape[2]
    widest = max(1, -(-int(kv_lengths_S.max()) // page_size))
    table_SM = page_table_SM[:, :widest]

    seen_SE = torch.arange(widest * page_size, device=q_SHD.device) < kv_lengths_S[:, None]

    def gathered(pages_NKZD: Tensor) -> Tensor:
        entries_SKED = pages_NKZD[table_SM].to(q_SHD.dtype).transpose(1, 2).flatten(2, 3)
        # What lies beyond a session's entries belongs to others; zeroed, since even unseen a NaN would spread.
        return entries_SKED.masked_fill(~seen_SE[:, None, :, None], 0)

    k_SKED, v_SKED = gathered(k_pages_NKZD), gathered(v_pages_NKZD)
    y_SHLD = F.scaled_dot_product_attention(
        q_SHD[:, :, None],
        k_SKED,
        v_SKED,
        attn_mask=seen_SE[:, None, None],
        enable_gqa=q_SHD.shape[1] != k_SKED.shape[1],
    )
    return y_SHLD[:, :, 0]


def attention_by_rows(q_IHPD: Tensor, k_IHPD: Tensor, v_IHPD: Tensor) -> Tensor:
    """Each position attends to all of its image, BLOCK_ROWS positions at a time, whose scores are written over.

    A processor that multiplies in bfloat16 takes less than half of the time of PyTorch's fused attention, whose
    products it does not speed up. The keys are turned once: a product turns them at each block.
    """
    images, heads, positions, size = q_IHPD.shape
    q_BPD, v_BPD = (part.reshape(images * heads, positions, size) for part in (q_IHPD * size**-0.5, v_IHPD))
    k_BDP = k_IHPD.transpose(2, 3).reshape(images * heads, size, positions)
    out_BPD = torch.empty_like(q_BPD)
    scores_X = q_BPD.new_empty(images * heads * min(BLOCK_ROWS, positions) * positions)
    for rows_BLD, out_BLD in zip(q_BPD.split(BLOCK_ROWS, 1), out_BPD.split(BLOCK_ROWS, 1), strict=True):
        scores_BLP = scores_X[: rows_BLD[..., 0].numel() * positions].view(*rows_BLD.shape[:2], positions)
        torch.bmm(rows_BLD, k_BDP, out=scores_BLP)
        torch.softmax(scores_BLP, -1, out=scores_BLP)
        out_BLD.copy_(torch.bmm(scores_BLP, v_BPD))
    return out_BPD.view(images, heads, positions, size)


def _narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype != torch.float8_e4m3fn:
        return x.to(dtype)
    limit = torch.finfo(dtype).max
    return x.float().clamp(-limit, limit).to(dtype)


def _attend(q_LHD: Tensor, k_EKD: Tensor, v_EKD: Tensor) -> Tensor:
    """The last L of E entries are the queries' own: query i sees entries 0 … E - L + i."""
    new, entries = q_LHD.shape[0], k_EKD.shape[0]
    if new == 0:
        return q_LHD
    seen_LE = torch.ones(new, entries, dtype=torch.bool, device=q_LHD.device).tril(entries - new)
    y_HLD = F.scaled_dot_product_attention(
        q_LHD.transpose(0, 1)[None],
        k_EKD.transpose(0, 1)[None],
        v_EKD.transpose(0, 1)[None],
        attn_mask=seen_LE,
        enable_gqa=q_LHD.shape[1] != k_EKD.shape[1],
    )[0]
    return y_HLD.transpose(0, 1)
