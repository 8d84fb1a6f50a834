"""Times of the attention, page and elementwise kernels at the real shapes of holotron-12b.

Shapes: S sessions, T tokens, L new tokens, E entries, H query heads, K key/value heads, D head dim, N pages, Z tokens
per page, M pages per session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from holotron.bench.kernels import Case
from holotron.ops.packing import Packing
from holotron.ops.triton import norm
from holotron.ops.triton.attention_decode import DecodeTuning, paged_decode_attention
from holotron.ops.triton.attention_flash import PrefillTuning, paged_flash_prefill
from holotron.ops.triton.attention_library import WAYS, cudnn
from holotron.ops.triton.attention_prefill import attend, merge, paged_prefill_attention
from holotron.ops.triton.pages import gather_pages, write_pages
from holotron.plan.gpus import GPUS

PEAK = (GPUS["H200"].bandwidth, GPUS["H200"].bf16_flops)

SESSIONS = 100
HISTORY = 25_000
NEW = 2_368  # one screenshot of 9 tiles and 64 tokens of text
HEADS, KV_HEADS, HEAD_DIM = 40, 8, 128
HIDDEN, INNER, GROUPS, MLP = 5120, 10240, 8, 20480
# The widest slice that the Mamba projection's gate is a view of: gate, convolution channels, time steps.
PROJECTION = 10240 + 12288 + 128
EPS = 1e-5
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


def cases(device: torch.device) -> Iterator[Case]:
    for part in (_decode, _prefill, _pages, _elementwise):
        yield from part(device)
        torch.cuda.empty_cache()


def _random_pages(count: int, page_size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = count, KV_HEADS, page_size, HEAD_DIM
    if dtype != FP8:
        return torch.empty(shape, dtype=dtype, device=device).normal_()
    # Any byte below 0x7f is a positive number: there are no infinities, and NaN is 0x7f.
    return torch.randint(0, 0x7F, shape, dtype=torch.uint8, device=device).view(FP8)


def _resized(pages_NKZD: Tensor, page_size: int) -> Tensor:
    """The same memory cut into pages of another size."""
    return pages_NKZD.view(-1, KV_HEADS, page_size, HEAD_DIM)


def _table(counts: list[int], device: torch.device) -> Tensor:
    """Shuffled pages, each used once."""
    order = torch.randperm(sum(counts), device=device, dtype=torch.int32)
    table = torch.zeros(len(counts), max(counts), dtype=torch.int32, device=device)
    for i, pages in enumerate(order.split(counts)):
        table[i, : len(pages)] = pages
    return table


def _decode(device: torch.device) -> Iterator[Case]:
    equal = [HISTORY] * SESSIONS
    # Sessions of all ages, as in the steady state of the agent workload; the same number of tokens in all.
    staggered = [2 * HISTORY * (i + 1) // (SESSIONS + 1) for i in range(SESSIONS)]
    q = torch.randn(SESSIONS, HEADS, HEAD_DIM, device=device, dtype=BF16)
    for dtype in (BF16, FP8):
        pages = -(-2 * HISTORY // 64) * SESSIONS // 2 + SESSIONS
        k, v = (_random_pages(pages, 64, dtype, device) for _ in range(2))
        for page_size, lengths, tuning, splits in _decode_variants(equal, staggered):
            yield _decode_case(q, k, v, lengths, page_size, splits, tuning, "ages" if lengths is staggered else "equal")
        yield _decode_case(q[:, :32], k, v, equal, 64, None, DecodeTuning(), "equal")
        yield _decode_case(q, k, v, [256] * SESSIONS, 64, None, DecodeTuning(), "equal")
        yield _decode_case(q[:1], k, v, [2 * HISTORY], 64, None, DecodeTuning(), "equal")
        del k, v
        torch.cuda.empty_cache()


def _decode_variants(
    equal: list[int], staggered: list[int]
) -> Iterator[tuple[int, list[int], DecodeTuning, int | None]]:
    for splits in (None, 1, 2, 3, 4, 6, 8, 12, 16):
        yield 64, equal, DecodeTuning(), splits
    for splits in (None, 4, 12, 16):
        yield 64, staggered, DecodeTuning(), splits
    for block, warps, stages in ((32, 4, 3), (32, 4, 5), (128, 4, 2), (128, 4, 3), (128, 8, 2), (128, 8, 3)):
        yield 64, equal, DecodeTuning(block, warps, stages), None
    for warps in (2, 4, 8):
        for stages in (2, 3, 4):
            yield 64, equal, DecodeTuning(64, warps, stages), None
    for page_size in (32, 16):
        for block in (page_size, 64, 128):
            yield page_size, equal, DecodeTuning(block=block), None


def _decode_case(
    q_SHD: Tensor,
    k_pages: Tensor,
    v_pages: Tensor,
    lengths: list[int],
    page_size: int,
    splits: int | None,
    tuning: DecodeTuning,
    ages: str,
) -> Case:
    k, v = _resized(k_pages, page_size), _resized(v_pages, page_size)
    table = _table([-(-n // page_size) for n in lengths], q_SHD.device)
    kv_lengths = torch.tensor(lengths, dtype=torch.int32, device=q_SHD.device)
    compute = partial(paged_decode_attention, q_SHD, k, v, table, kv_lengths, splits=splits, tuning=tuning)
    tokens = sum(lengths)
    shape = f"S={len(lengths)} tokens={tokens} {ages} H={q_SHD.shape[1]} Z={page_size} {str(k.dtype)[6:]}"
    config = f"splits={splits or 'auto'} block={tuning.block} warps={tuning.num_warps} stages={tuning.num_stages}"
    nbytes = 2 * tokens * KV_HEADS * HEAD_DIM * k.element_size()
    return Case("paged_decode_attention", shape, config, compute, nbytes=nbytes)


PREFILL_TUNINGS = (
    PrefillTuning(128, 64, 8, 2),
    PrefillTuning(128, 64, 8, 3),
    PrefillTuning(128, 64, 8, 4),
    PrefillTuning(128, 128, 8, 2),
    PrefillTuning(128, 128, 8, 3),
    PrefillTuning(64, 64, 4, 3),
    PrefillTuning(64, 128, 4, 2),
)


def _prefill(device: torch.device) -> Iterator[Case]:
    entries = HISTORY + NEW
    q = torch.randn(NEW, HEADS + 2 * KV_HEADS, HEAD_DIM, device=device, dtype=BF16)[:, :HEADS]
    flops = 4 * HEADS * HEAD_DIM * (NEW * HISTORY + NEW * (NEW + 1) / 2)
    for dtype in (BF16, FP8):
        k, v = (_random_pages(-(-entries // 64), 64, dtype, device) for _ in range(2))
        table = _table([-(-entries // 64)], device)
        shape = f"L={NEW} E={entries} Z=64 {str(dtype)[6:]}"
        gather = partial(gather_pages, k, table[0], entries, dtype=BF16)
        moved = entries * KV_HEADS * HEAD_DIM * (2 + k.element_size())
        yield Case("gather_pages", shape, "keys alone", gather, nbytes=moved)
        arguments = q, k, v, table, (entries,), Packing((NEW,))
        for way in WAYS:
            if way != "formula":
                compute = partial(paged_prefill_attention, *arguments, way=way)
                yield Case("paged_prefill_attention", shape, f"{way}, with gather", compute, flops=flops)
        for tuning in PREFILL_TUNINGS:
            compute = partial(paged_flash_prefill, *arguments, tuning=tuning)
            config = f"rows={tuning.rows} block={tuning.block} warps={tuning.num_warps} stages={tuning.num_stages}"
            yield Case("paged_flash_prefill", shape, config, compute, flops=flops)
    yield from _library_attention(q, flops)


def _library_attention(q_LHD: Tensor, flops: float) -> Iterator[Case]:
    """The library kernels alone, on keys and values at hand."""
    new, entries = q_LHD.shape[0], HISTORY + NEW
    k, v = (torch.randn(entries, KV_HEADS, HEAD_DIM, device=q_LHD.device, dtype=BF16).transpose(0, 1) for _ in "kv")
    shape = f"L={new} E={entries} bfloat16"
    for name, way in WAYS.items():
        if name != "formula":
            yield Case("attend", shape, name, partial(attend, q_LHD, k, v, way), flops=flops)
    q_HLD = q_LHD.transpose(0, 1)
    for repeats in (1, HEADS // KV_HEADS):
        wide_k, wide_v = (x.repeat_interleave(repeats, 0)[None] for x in (k, v))
        bias = causal_lower_right(new, entries)
        sdpa = partial(F.scaled_dot_product_attention, attn_mask=bias, enable_gqa=repeats == 1)
        compute = partial(sdpa, q_HLD[None], wide_k, wide_v)
        config = f"causal_lower_right, heads repeated {repeats} times"
        yield Case("scaled_dot_product_attention", shape, config, compute, flops=flops)
    parts = [torch.randn(new, HEADS, HEAD_DIM, device=q_LHD.device, dtype=BF16).transpose(0, 1) for _ in "ab"]
    lse = torch.randn(HEADS, new, device=q_LHD.device)
    yield Case("merge", shape, "", partial(merge, parts[0], lse, parts[1], lse), nbytes=3 * parts[0].nbytes)
    # cuDNN plans when it meets a size for the first time.
    first = partial(cudnn, q_HLD, k[:, :4999], v[:, :4999], False)
    yield Case("cudnn", f"L={new} E=4999", "first call, planning", first, once=True)


def _pages(device: torch.device) -> Iterator[Case]:
    for tokens in (SESSIONS, NEW):
        qkv = torch.randn(tokens, HEADS + 2 * KV_HEADS, HEAD_DIM, device=device, dtype=BF16)
        k, v = qkv[:, HEADS:-KV_HEADS], qkv[:, -KV_HEADS:]
        places = torch.randperm(40 * NEW, device=device)[:tokens]
        for dtype in (BF16, FP8):
            k_pages, v_pages = (_random_pages(40 * NEW // 64, 64, dtype, device) for _ in range(2))
            compute = partial(write_pages, k, v, k_pages, v_pages, places)
            moved = 2 * k.numel() * (2 + k_pages.element_size())
            yield Case("write_pages", f"T={tokens} {str(dtype)[6:]}", "", compute, nbytes=moved)


def _elementwise(device: torch.device) -> Iterator[Case]:
    for tokens in (SESSIONS, NEW):
        x, delta = (torch.randn(tokens, HIDDEN, device=device, dtype=BF16) for _ in range(2))
        weight = torch.randn(HIDDEN, device=device, dtype=BF16)
        inner, gate_weight = (torch.randn(*n, INNER, device=device, dtype=BF16) for n in ((tokens,), ()))
        gate = torch.randn(tokens, PROJECTION, device=device, dtype=BF16)[:, :INNER]
        wide = torch.randn(tokens, MLP, device=device, dtype=BF16)
        variants: list[tuple[str, Callable[[], object], int]] = [
            ("rms_norm", partial(norm.rms_norm, x, weight, EPS), 2 * x.nbytes),
            ("add_rms_norm", partial(norm.add_rms_norm, x, delta, weight, EPS), 4 * x.nbytes),
            ("gated_rms_norm", partial(norm.gated_rms_norm, inner, gate, gate_weight, EPS, GROUPS), 3 * inner.nbytes),
            ("relu_squared", partial(norm.relu_squared, wide), 2 * wide.nbytes),
        ]
        for name, compute, nbytes in variants:
            yield Case(name, f"T={tokens}", "", compute, nbytes=nbytes)
