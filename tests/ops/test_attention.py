"""Attention over packed and paged sequences against the formula written out."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holotron.ops import Packing, attention, paged_attention, write_pages


def formula(q_LHD, k_EKD, v_EKD):
    """softmax(q·k / sqrt(d)) v, query i of the last L seeing everything up to itself."""
    per_head = q_LHD.shape[1] // k_EKD.shape[1]
    k, v = k_EKD.repeat_interleave(per_head, 1), v_EKD.repeat_interleave(per_head, 1)
    past = k.shape[0] - q_LHD.shape[0]
    rows = []
    for i, q_HD in enumerate(q_LHD):
        seen = past + i + 1
        scores = torch.einsum("hd,ehd->he", q_HD, k[:seen]) / math.sqrt(q_HD.shape[-1])
        rows.append(torch.einsum("he,ehd->hd", scores.softmax(-1), v[:seen]))
    return torch.stack(rows) if rows else q_LHD


def draw(tokens, heads, seed, head_dim=4):
    return torch.randn(tokens, heads, head_dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3).filter(lambda lengths: sum(lengths) > 0),
    kv_heads=st.sampled_from([1, 2]),
    per_head=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_packed(lengths, kv_heads, per_head, seed):
    packing = Packing(tuple(lengths))
    q, k, v = draw(packing.tokens, kv_heads * per_head, seed), draw(packing.tokens, kv_heads, seed + 1), None
    v = draw(packing.tokens, kv_heads, seed + 2)
    y = attention(q, k, v, packing)
    for start, end in zip(packing.starts, packing.starts[1:], strict=False):
        torch.testing.assert_close(y[start:end], formula(q[start:end], k[start:end], v[start:end]))


@settings(deadline=None, max_examples=40)
@given(
    sessions=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=3),
    page_size=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_paged(sessions, page_size, seed):
    """Pages in shuffled order, filled with noise, give what contiguous keys and values give."""
    total = [past + new for past, new in sessions]
    counts = [-(-n // page_size) for n in total]
    order = torch.randperm(sum(counts) + 3, generator=torch.Generator().manual_seed(seed)).tolist()
    tables = [[order.pop() for _ in range(count)] for count in counts]
    k_pages, v_pages = draw((sum(counts) + 3) * page_size, 2, seed), draw((sum(counts) + 3) * page_size, 2, seed + 1)
    k_pages, v_pages = k_pages.view(-1, 2, page_size, 4), v_pages.view(-1, 2, page_size, 4)
    keys = [draw(n, 2, seed + 10 + i) for i, n in enumerate(total)]
    values = [draw(n, 2, seed + 20 + i) for i, n in enumerate(total)]
    for k, v, table in zip(keys, values, tables, strict=True):
        places = torch.tensor([table[i // page_size] * page_size + i % page_size for i in range(len(k))])
        write_pages(k, v, k_pages, v_pages, places)
    packing = Packing(tuple(new for _, new in sessions))
    q = draw(packing.tokens, 4, seed + 30)
    table = torch.tensor([t + [0] * (max(counts) - len(t)) for t in tables])
    y = paged_attention(q, k_pages, v_pages, table, total, packing)
    for i, (start, end) in enumerate(zip(packing.starts, packing.starts[1:], strict=False)):
        torch.testing.assert_close(y[start:end], formula(q[start:end], keys[i], values[i]))


def test_gradients():
    packing = Packing((2, 3))
    tensors = [draw(5, heads, seed).requires_grad_() for seed, heads in enumerate((4, 2, 2))]
    assert torch.autograd.gradcheck(lambda q, k, v: attention(q, k, v, packing), tensors)
