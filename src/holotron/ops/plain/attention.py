"""Causal grouped-query attention over packed sequences, with keys and values at hand or in pages.

Shapes: T packed tokens, S sequences, H query heads, K key/value heads, D head dim, N pages, Z tokens per page,
M pages per sequence at most.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from holotron.ops.packing import Packing


def attention(q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, packing: Packing) -> Tensor:
    """Each token attends to itself and the earlier tokens of its own sequence."""
    outputs = [
        _attend(q_THD[start:end], k_TKD[start:end], v_TKD[start:end])
        for start, end in zip(packing.starts, packing.starts[1:], strict=False)
    ]
    return torch.cat(outputs)


def write_pages(k_TKD: Tensor, v_TKD: Tensor, k_pages_NKZD: Tensor, v_pages_NKZD: Tensor, places_T: Tensor) -> None:
    """Store the keys and values of new tokens, each at page · page size + offset."""
    page, offset = places_T // k_pages_NKZD.shape[2], places_T % k_pages_NKZD.shape[2]
    k_pages_NKZD[page, :, offset] = k_TKD.to(k_pages_NKZD.dtype)
    v_pages_NKZD[page, :, offset] = v_TKD.to(v_pages_NKZD.dtype)


def paged_attention(
    q_THD: Tensor,
    k_pages_NKZD: Tensor,
    v_pages_NKZD: Tensor,
    page_table_SM: Tensor,
    kv_lengths_S: Tensor,
    packing: Packing,
) -> Tensor:
    """Each new token attends to all that its session's pages hold up to itself.

    kv_lengths_S counts the entries in each session's pages, the new tokens (already written) included.
    """
    page_size = k_pages_NKZD.shape[2]
    outputs = []
    for sequence, length in enumerate(kv_lengths_S.tolist()):
        pages = page_table_SM[sequence, : -(-length // page_size)]
        k_EKD = k_pages_NKZD[pages].transpose(1, 2).flatten(0, 1)[:length].to(q_THD.dtype)
        v_EKD = v_pages_NKZD[pages].transpose(1, 2).flatten(0, 1)[:length].to(q_THD.dtype)
        outputs.append(_attend(q_THD[packing.starts[sequence] : packing.starts[sequence + 1]], k_EKD, v_EKD))
    return torch.cat(outputs)


def paged_step_attention(
    q_SHD: Tensor, k_pages_NKZD: Tensor, v_pages_NKZD: Tensor, page_table_SM: Tensor, kv_lengths_S: Tensor
) -> Tensor:
    """paged_attention for one new token per session."""
    packing = Packing((1,) * len(q_SHD), device=q_SHD.device)
    return paged_attention(q_SHD, k_pages_NKZD, v_pages_NKZD, page_table_SM, kv_lengths_S, packing)


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
