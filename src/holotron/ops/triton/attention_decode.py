"""Attention of one new token per session over its pages (split-KV flash decoding with grouped queries).

Shapes: S sessions, H query heads, K key/value heads, G = H / K query heads per key/value head, D head dim, N pages,
Z tokens per page, M pages per session at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = math.log2(math.e)
# Enough programs per multiprocessor that the last, partly filled wave weighs little, and that long and short
# sessions even out; the partial results stay below 1% of the traffic.
PROGRAMS_PER_PROCESSOR = 32
MAX_SPLITS = 64


@dataclass(frozen=True)
class DecodeTuning:
    """How the work is cut: tokens per iteration (a power of two), warps per program, depth of the load pipeline."""

    block: int = 64
    num_warps: int = 4
    num_stages: int = 3


def choose_splits(sessions: int, kv_heads: int, max_pages: int, device: torch.device) -> int:
    """How many programs share one session and head. Looks at shapes only, so that launches can be captured."""
    wanted = -(-_processors(device) * PROGRAMS_PER_PROCESSOR // (sessions * kv_heads))
    return max(1, min(wanted, MAX_SPLITS, max_pages))


def paged_decode_attention(
    q_SHD: Tensor,
    k_pages_NKZD: Tensor,
    v_pages_NKZD: Tensor,
    page_table_SM: Tensor,
    kv_lengths_S: Tensor,
    *,
    splits: int | None = None,
    tuning: DecodeTuning | None = None,
) -> Tensor:
    """Each session's token attends to all kv_lengths_S entries of its pages, itself (already written) included.

    A length of 0 gives zeros. Never waits for the device: the number of splits is chosen from the shapes where it is
    not given; each session divides its own length among them.
    """
    sessions, heads, head_dim = q_SHD.shape
    kv_heads, page_size = k_pages_NKZD.shape[1], k_pages_NKZD.shape[2]
    check_shapes(q_SHD, k_pages_NKZD, v_pages_NKZD)
    # Half the bytes leave half the work per program: two warps keep more loads in flight (1.40 against 1.54 ms).
    tuning = tuning or DecodeTuning(num_warps=2 if k_pages_NKZD.itemsize == 1 else 4)
    splits = splits or choose_splits(sessions, kv_heads, page_table_SM.shape[1], q_SHD.device)
    # Of each split its result, normalised by its own sum, and that sum's base-2 logarithm: -inf where it read nothing.
    partial_SHXD = q_SHD.new_empty(sessions, heads, splits, head_dim, dtype=torch.float32)
    lse_SHX = q_SHD.new_empty(sessions, heads, splits, dtype=torch.float32)
    out = torch.empty(q_SHD.shape, dtype=q_SHD.dtype, device=q_SHD.device)
    group = heads // kv_heads
    _decode_split_kernel[(sessions, kv_heads, splits)](
        q_SHD,
        k_pages_NKZD,
        v_pages_NKZD,
        page_table_SM,
        kv_lengths_S,
        partial_SHXD,
        lse_SHX,
        LOG2_E / math.sqrt(head_dim),
        *q_SHD.stride()[:2],
        *k_pages_NKZD.stride()[:3],
        *v_pages_NKZD.stride()[:3],
        page_table_SM.stride(0),
        GROUP=group,
        GROUP_PAD=max(16, triton.next_power_of_2(group)),  # the tensor cores' smallest tile has 16 rows
        D=head_dim,
        Z=page_size,
        BLOCK=tuning.block,
        COMPUTE=compute_type(q_SHD, k_pages_NKZD),
        num_warps=tuning.num_warps,
        num_stages=tuning.num_stages,
    )
    _decode_merge_kernel[(sessions, heads)](
        partial_SHXD,
        lse_SHX,
        out,
        *out.stride()[:2],
        splits,
        D=head_dim,
        SPLITS_PAD=triton.next_power_of_2(splits),
        num_warps=4,
    )
    return out


def check_shapes(q_THD: Tensor, k_pages_NKZD: Tensor, v_pages_NKZD: Tensor) -> None:
    """What the kernels take for granted."""
    heads, head_dim = q_THD.shape[1:]
    if k_pages_NKZD.shape != v_pages_NKZD.shape or k_pages_NKZD.shape[3] != head_dim:
        raise ValueError(f"pages {tuple(k_pages_NKZD.shape)} and {tuple(v_pages_NKZD.shape)} for head dim {head_dim}")
    if heads % k_pages_NKZD.shape[1]:
        raise ValueError(f"{heads} query heads do not divide among {k_pages_NKZD.shape[1]} key/value heads")
    for size in (head_dim, k_pages_NKZD.shape[2]):
        if size < 16 or size & (size - 1):
            raise ValueError(f"head dim and page size must be powers of two from 16 on, got {size}")
    if any(tensor.stride(-1) != 1 for tensor in (q_THD, k_pages_NKZD, v_pages_NKZD)):
        raise ValueError("the channels of queries and pages must lie side by side")


def compute_type(q_THD: Tensor, pages_NKZD: Tensor) -> tl.dtype:
    """What the products are taken in; sums are always 32-bit."""
    # The interpreter, which serves tensors in host memory, multiplies the bits of 16-bit floats, not their values.
    if q_THD.dtype == torch.float32 or q_THD.device.type == "cpu":
        return tl.float32
    # fp16 holds every e4m3 value exactly, and Hopper converts between the two in one instruction (three for bf16).
    if pages_NKZD.dtype == torch.float8_e4m3fn or q_THD.dtype == torch.float16:
        return tl.float16
    return tl.bfloat16


@lru_cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 132


@triton.jit
def to_compute(q, COMPUTE: tl.constexpr):
    """Queries in the type of the products; what fp16 cannot hold is clamped, for an infinity would give NaN."""
    q = q.to(tl.float32)
    if COMPUTE == tl.float16:  # noqa: SIM300
        q = tl.minimum(tl.maximum(q, -65504.0), 65504.0)
    return q.to(COMPUTE)


@triton.jit
def block_pages(table_row, block, entries, BLOCK: tl.constexpr, Z: tl.constexpr):
    """The page of a block of entries: one number if the block lies in one page, else one per entry.

    64 bits, because page · page size · heads · head dim passes 2^31.
    """
    if BLOCK <= Z:
        page = tl.load(table_row + block * BLOCK // Z, mask=block * BLOCK < entries, other=0)
    else:
        n = block * BLOCK + tl.arange(0, BLOCK)
        page = tl.load(table_row + n // Z, mask=n < entries, other=0)
    return page.to(tl.int64)


# Tables may start at any of their entries: one compilation serves all.
@triton.jit(do_not_specialize_on_alignment=["table_ptr", "lengths_ptr"])
def _decode_split_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lengths_ptr,
    partial_ptr,
    lse_ptr,
    score_scale,
    q_stride_s,
    q_stride_h,
    k_stride_n,
    k_stride_k,
    k_stride_z,
    v_stride_n,
    v_stride_k,
    v_stride_z,
    table_stride_s,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    D: tl.constexpr,
    Z: tl.constexpr,
    BLOCK: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    session = tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    splits = tl.num_programs(2)  # not a constant: it changes with the batch, and would be compiled for anew
    length = tl.load(lengths_ptr + session).to(tl.int32)
    blocks = tl.cdiv(length, BLOCK)
    share = tl.cdiv(blocks, splits)
    first = split * share
    last = tl.minimum(first + share, blocks)

    g = tl.arange(0, GROUP_PAD)
    d = tl.arange(0, D)
    head = kv_head * GROUP + g
    real = g < GROUP
    q_offsets = session.to(tl.int64) * q_stride_s + head[:, None] * q_stride_h + d[None, :]
    q_GD = to_compute(tl.load(q_ptr + q_offsets, mask=real[:, None], other=0.0), COMPUTE)

    table_row = table_ptr + session.to(tl.int64) * table_stride_s
    k_ptr += kv_head * k_stride_k
    v_ptr += kv_head * v_stride_k
    top_G = tl.full((GROUP_PAD,), float("-inf"), tl.float32)
    sum_G = tl.zeros((GROUP_PAD,), tl.float32)
    acc_GD = tl.zeros((GROUP_PAD, D), tl.float32)
    # Pages are looked up one block ahead: the loads of keys and values never wait for the table.
    page = block_pages(table_row, first, length, BLOCK, Z)
    for block in range(first, last):
        next_page = block_pages(table_row, block + 1, length, BLOCK, Z)
        n = block * BLOCK + tl.arange(0, BLOCK)
        seen = n < length
        k_rows = k_ptr + page * k_stride_n + (n % Z) * k_stride_z
        v_rows = v_ptr + page * v_stride_n + (n % Z) * v_stride_z
        # What lies beyond the length may be anything, even NaN, which a weight of zero would not take away.
        k_BD = tl.load(k_rows[:, None] + d[None, :], mask=seen[:, None], other=0.0).to(COMPUTE)
        v_BD = tl.load(v_rows[:, None] + d[None, :], mask=seen[:, None], other=0.0).to(COMPUTE)
        scores_GB = tl.dot(q_GD, tl.trans(k_BD), input_precision="ieee") * score_scale
        scores_GB = tl.where(seen[None, :], scores_GB, float("-inf"))
        new_top_G = tl.maximum(top_G, tl.max(scores_GB, 1))
        shrink_G = tl.exp2(top_G - new_top_G)
        weights_GB = tl.exp2(scores_GB - new_top_G[:, None])
        sum_G = sum_G * shrink_G + tl.sum(weights_GB, 1)
        acc_GD = tl.dot(weights_GB.to(COMPUTE), v_BD, acc_GD * shrink_G[:, None], input_precision="ieee")
        top_G = new_top_G
        page = next_page

    row = (session.to(tl.int64) * tl.num_programs(1) * GROUP + head) * splits + split
    worked = first < last
    sum_G = tl.where(worked, sum_G, 1.0)  # top is -inf there, and so is the logarithm
    tl.store(lse_ptr + row, top_G + tl.log2(sum_G), mask=real)
    partial_GD = acc_GD * (1.0 / sum_G)[:, None]
    written = g < tl.where(worked, GROUP, 0)
    tl.store(partial_ptr + row[:, None] * D + d[None, :], partial_GD, mask=written[:, None])


@triton.jit(do_not_specialize=["splits"])
def _decode_merge_kernel(
    partial_ptr, lse_ptr, out_ptr, out_stride_s, out_stride_h, splits, D: tl.constexpr, SPLITS_PAD: tl.constexpr
):
    session = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    row = (session * tl.num_programs(1) + head) * splits
    x = tl.arange(0, SPLITS_PAD)
    d = tl.arange(0, D)
    lse_X = tl.load(lse_ptr + row + x, mask=x < splits, other=float("-inf"))
    worked = lse_X != float("-inf")  # NaN counts: it must not vanish here
    top = tl.max(lse_X, 0)
    weights_X = tl.where(worked, tl.exp2(lse_X - top), 0.0)
    # Splits without work never wrote their part.
    partial_XD = tl.load(partial_ptr + (row + x)[:, None] * D + d[None, :], mask=worked[:, None], other=0.0)
    total = tl.sum(weights_X, 0)
    y_D = tl.sum(partial_XD * weights_X[:, None], 0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out_ptr + session * out_stride_s + head * out_stride_h + d, y_D.to(out_ptr.dtype.element_ty))
