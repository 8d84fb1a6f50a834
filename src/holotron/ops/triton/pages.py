"""Writing new keys and values into pages, and reading a session's pages back as one piece.

Shapes: T tokens, K key/value heads, D head dim, N pages, Z tokens per page, E entries of a session.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

E4M3_MAX = 448.0


def write_pages(
    k_TKD: Tensor,
    v_TKD: Tensor,
    k_pages_NKZD: Tensor,
    v_pages_NKZD: Tensor,
    places_T: Tensor,
) -> None:
    """Store new keys and values, each at page · page size + offset; at place -1 nothing is stored.

    For pages in 8 bits they are clamped to what the format holds.
    """
    tokens, kv_heads, head_dim = k_TKD.shape
    if tokens == 0:
        return
    if any(tensor.stride(-1) != 1 for tensor in (k_TKD, v_TKD, k_pages_NKZD, v_pages_NKZD)):
        raise ValueError("the channels of keys, values and pages must lie side by side")
    _write_kernel[(tokens,)](
        k_TKD,
        v_TKD,
        k_pages_NKZD,
        v_pages_NKZD,
        places_T,
        *k_TKD.stride()[:2],
        *v_TKD.stride()[:2],
        *k_pages_NKZD.stride()[:3],
        *v_pages_NKZD.stride()[:3],
        KV_HEADS=kv_heads,
        KV_HEADS_PAD=triton.next_power_of_2(kv_heads),
        D=head_dim,
        D_PAD=triton.next_power_of_2(head_dim),
        Z=k_pages_NKZD.shape[2],
        QUANTISED=k_pages_NKZD.dtype == torch.float8_e4m3fn,
        LIMIT=E4M3_MAX,
        num_warps=4,
    )


def gather_pages(pages_NKZD: Tensor, table_row_M: Tensor, length: int, *, dtype: torch.dtype) -> Tensor:
    """The first `length` entries of one session, [K, E, D].

    In memory the entries come first: strides then do not depend on the length, which cuDNN would plan anew for.
    """
    _, kv_heads, page_size, head_dim = pages_NKZD.shape
    out_EKD = torch.empty(length, kv_heads, head_dim, dtype=dtype, device=pages_NKZD.device)
    if length:
        _gather_kernel[(-(-length // page_size), kv_heads)](
            pages_NKZD,
            table_row_M,
            out_EKD,
            length,
            *pages_NKZD.stride()[:3],
            D=head_dim,
            D_PAD=triton.next_power_of_2(head_dim),
            Z=page_size,
            Z_PAD=triton.next_power_of_2(page_size),
            num_warps=4,
        )
    return out_EKD.transpose(0, 1)


@triton.jit
def _narrow(x, QUANTISED: tl.constexpr, LIMIT: tl.constexpr, TYPE: tl.constexpr):
    if QUANTISED:
        x = tl.minimum(tl.maximum(x.to(tl.float32), -LIMIT), LIMIT)
    return x.to(TYPE)


# Tables may start at any of their entries: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["places_ptr"])
def _write_kernel(
    k_ptr,
    v_ptr,
    k_pages_ptr,
    v_pages_ptr,
    places_ptr,
    k_stride_t,
    k_stride_k,
    v_stride_t,
    v_stride_k,
    k_pages_stride_n,
    k_pages_stride_k,
    k_pages_stride_z,
    v_pages_stride_n,
    v_pages_stride_k,
    v_pages_stride_z,
    KV_HEADS: tl.constexpr,
    KV_HEADS_PAD: tl.constexpr,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    Z: tl.constexpr,
    QUANTISED: tl.constexpr,
    LIMIT: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    place = tl.load(places_ptr + token).to(tl.int64)
    page = place // Z
    offset = place % Z
    head = tl.arange(0, KV_HEADS_PAD)[:, None]
    d = tl.arange(0, D_PAD)[None, :]
    mask = (head < tl.where(place >= 0, KV_HEADS, 0)) & (d < D)
    k_KD = tl.load(k_ptr + token * k_stride_t + head * k_stride_k + d, mask=mask, other=0.0)
    v_KD = tl.load(v_ptr + token * v_stride_t + head * v_stride_k + d, mask=mask, other=0.0)
    k_KD = _narrow(k_KD, QUANTISED, LIMIT, k_pages_ptr.dtype.element_ty)
    v_KD = _narrow(v_KD, QUANTISED, LIMIT, v_pages_ptr.dtype.element_ty)
    k_row = page * k_pages_stride_n + offset * k_pages_stride_z
    v_row = page * v_pages_stride_n + offset * v_pages_stride_z
    tl.store(k_pages_ptr + k_row + head * k_pages_stride_k + d, k_KD, mask=mask)
    tl.store(v_pages_ptr + v_row + head * v_pages_stride_k + d, v_KD, mask=mask)


@triton.jit(do_not_specialize=["length"], do_not_specialize_on_alignment=["table_ptr"])
def _gather_kernel(
    pages_ptr,
    table_ptr,
    out_ptr,
    length,
    stride_n,
    stride_k,
    stride_z,
    D: tl.constexpr,
    D_PAD: tl.constexpr,
    Z: tl.constexpr,
    Z_PAD: tl.constexpr,
):
    index = tl.program_id(0)
    kv_head = tl.program_id(1)
    page = tl.load(table_ptr + index).to(tl.int64)
    z = tl.arange(0, Z_PAD)[:, None]
    d = tl.arange(0, D_PAD)[None, :]
    entry = index * Z + z
    mask = (z < Z) & (entry < length) & (d < D)
    x_ZD = tl.load(pages_ptr + page * stride_n + kv_head * stride_k + z * stride_z + d, mask=mask, other=0.0)
    row = entry.to(tl.int64) * tl.num_programs(1) + kv_head
    tl.store(out_ptr + row * D + d, x_ZD.to(out_ptr.dtype.element_ty), mask=mask)
