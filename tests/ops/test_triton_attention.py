"""Paged attention in Triton, run by its interpreter, against the plain ops."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported

triton = pytest.importorskip("triton")
if isinstance(triton.language.zeros, triton.JITFunction):
    pytest.skip("Triton was imported to compile, not to interpret", allow_module_level=True)

from holotron.ops.packing import Packing  # noqa: E402
from holotron.ops.plain import attention as plain  # noqa: E402
from holotron.ops.triton import attention_library as library  # noqa: E402
from holotron.ops.triton import attention_prefill  # noqa: E402
from holotron.ops.triton.attention_decode import (  # noqa: E402
    DecodeTuning,
    choose_splits,
    paged_decode_attention,
)
from holotron.ops.triton.attention_flash import PrefillTuning, paged_flash_prefill  # noqa: E402
from holotron.ops.triton.attention_prefill import attend, merge, paged_prefill_attention  # noqa: E402
from holotron.ops.triton.pages import gather_pages, write_pages  # noqa: E402

NAN = float("nan")
FP8 = torch.float8_e4m3fn
# The interpreter cuts 16-bit results off where the device rounds them: one unit in the last of 8 bits.
BF16 = {"rtol": 2**-7, "atol": 2**-7}


def draw(*shape, seed, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Pages:
    """Pages in shuffled order, written for sessions of these lengths; everything that is not written is NaN."""

    def __init__(self, lengths, kv_heads, page_size, head_dim, seed=0, dtype=torch.float32):
        counts = [-(-length // page_size) for length in lengths]
        order = torch.randperm(sum(counts) + 2, generator=torch.Generator().manual_seed(seed)).tolist()
        unused = order.pop()
        self.k = torch.full((len(order) + 1, kv_heads, page_size, head_dim), NAN).to(dtype)
        self.v = self.k.clone()
        self.lengths = tuple(lengths)
        rows = []
        for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            row = [order.pop() for _ in range(count)]
            places = torch.tensor([row[n // page_size] * page_size + n % page_size for n in range(length)]).long()
            k, v = draw(length, kv_heads, head_dim, seed=seed + i), draw(length, kv_heads, head_dim, seed=seed + 50 + i)
            plain.write_pages(k * 2, v * 2, self.k, self.v, places)
            rows.append(row + [unused] * (max(counts) + 1 - count))
        self.table = torch.tensor(rows)

    def expected(self, q, packing=None):
        packing = packing or Packing((1,) * len(q))
        y = plain.paged_attention(q.float(), self.k.float(), self.v.float(), self.table, self.lengths, packing)
        return y.to(q.dtype)


def decode(q, pages, **options):
    lengths = torch.tensor(pages.lengths, dtype=torch.int32)
    return paged_decode_attention(q, pages.k, pages.v, pages.table, lengths, **options)


@pytest.mark.parametrize(
    ("page_size", "kv_heads", "group", "head_dim", "block"),
    [(16, 2, 5, 16, 64), (32, 1, 3, 64, 32), (64, 2, 1, 16, 64), (64, 1, 5, 128, 32), (16, 2, 20, 16, 16)],
)
def test_decode_shapes(page_size, kv_heads, group, head_dim, block):
    pages = Pages((1, page_size, page_size + 1, 5 * page_size - 3), kv_heads, page_size, head_dim)
    q = draw(4, kv_heads * group, head_dim, seed=9)
    y = decode(q, pages, splits=2, tuning=DecodeTuning(block=block))
    torch.testing.assert_close(y, pages.expected(q), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("splits", range(1, 8))
def test_decode_splits(splits):
    """More splits than blocks leave some without work, which must not show."""
    pages = Pages((1, 16, 17, 83), 2, 16, 16, seed=splits)
    q = draw(4, 6, 16, seed=splits)
    y = decode(q, pages, splits=splits, tuning=DecodeTuning(block=16))
    torch.testing.assert_close(y, pages.expected(q), rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=15)
@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    page_size=st.sampled_from([16, 32]),
    block=st.sampled_from([16, 32, 64]),
    splits=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_decode_lengths(lengths, page_size, block, splits, seed):
    pages = Pages(lengths, 1, page_size, 16, seed=seed)
    q = draw(len(lengths), 3, 16, seed=seed)
    y = decode(q, pages, splits=splits, tuning=DecodeTuning(block=block))
    torch.testing.assert_close(y, pages.expected(q), rtol=1e-5, atol=1e-5)


def test_decode_of_nothing_is_zero():
    pages = Pages((0, 20), 2, 16, 16)
    q = draw(2, 4, 16, seed=1)
    y = decode(q, pages, splits=3)
    assert torch.equal(y[0], torch.zeros(4, 16))
    torch.testing.assert_close(y[1:], pages.expected(q)[1:], rtol=1e-5, atol=1e-5)


def test_decode_padding_rows():
    """Rows that fill up a captured batch: one entry in page 0, whatever lies there."""
    pages = Pages((40, 1, 1), 1, 16, 16)
    pages.table[1:] = 0
    q = draw(3, 5, 16, seed=2)
    y = decode(q, pages, splits=4)
    torch.testing.assert_close(y[:1], pages.expected(q)[:1], rtol=1e-5, atol=1e-5)


def test_decode_uses_nothing_that_it_did_not_write():
    """Splits without work leave their part of memory as it was, which may be NaN; queries are a view."""
    pages = Pages((5, 33), 2, 16, 16)
    qkv = draw(2, 10, 16, seed=3)
    torch.use_deterministic_algorithms(True)  # new memory is filled with NaN then
    try:
        assert torch.empty(2).isnan().all()
        y = decode(qkv[:, 2:8], pages, splits=3)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(y, pages.expected(qkv[:, 2:8]), rtol=1e-5, atol=1e-5)


def test_decode_extreme_scores():
    """Scores of thousands: the running maximum must be taken out before exponentiation."""
    pages = Pages((50,), 1, 16, 16)
    q = 1000 * draw(1, 3, 16, seed=4)
    torch.testing.assert_close(decode(q, pages, splits=2), pages.expected(q), rtol=1e-4, atol=1e-4)


def test_decode_layer_of_a_pool():
    """Pages are one layer of a tensor with all layers."""
    pages = Pages((30, 70), 2, 32, 16)
    pages.k, pages.v = (torch.stack([torch.full_like(x, NAN), x])[1] for x in (pages.k, pages.v))
    q = draw(2, 4, 16, seed=5)
    torch.testing.assert_close(decode(q, pages, splits=2), pages.expected(q), rtol=1e-5, atol=1e-5)


def test_decode_bf16():
    pages = Pages((1, 64, 150), 2, 64, 64, dtype=torch.bfloat16)
    q = draw(3, 10, 64, seed=6, dtype=torch.bfloat16)
    torch.testing.assert_close(decode(q, pages, splits=2), pages.expected(q), **BF16)


def test_decode_fp8():
    """Exact for what the pages hold."""
    pages = Pages((1, 64, 150), 2, 64, 64, dtype=FP8)
    q = draw(3, 10, 64, seed=7)
    y = decode(q, pages, splits=2)
    torch.testing.assert_close(y, pages.expected(q), rtol=1e-5, atol=1e-5)


def test_splits_follow_the_shapes():
    cpu = torch.device("cpu")
    assert choose_splits(100, 8, 800, cpu) == 6
    assert choose_splits(1, 8, 800, cpu) == 64
    assert choose_splits(1, 8, 3, cpu) == 3
    assert choose_splits(5000, 8, 800, cpu) == 1


def test_unfit_shapes_are_named():
    pages = Pages((5,), 2, 16, 16)
    with pytest.raises(ValueError, match="3 query heads"):
        decode(draw(1, 3, 16, seed=0), pages)
    with pytest.raises(ValueError, match="head dim 32"):
        decode(draw(1, 4, 32, seed=0), pages)


# New tokens and history of each sequence: none, one entry, within a page, at its edge, over many pages.
SESSIONS = [((1, 0), (17, 0)), ((16, 16), (0, 5), (5, 43)), ((33, 31),), ((40, 90),)]


def prefill(name, q, pages, packing):
    arguments = q, pages.k, pages.v, pages.table, pages.lengths, packing
    if name == "triton":
        return paged_flash_prefill(*arguments, tuning=PrefillTuning(rows=16, block=32))
    return paged_prefill_attention(*arguments, way=name)


@pytest.mark.parametrize("name", ["formula", "triton"])
@pytest.mark.parametrize("sessions", SESSIONS)
@pytest.mark.parametrize(("page_size", "group", "head_dim"), [(16, 5, 16), (32, 1, 64), (64, 3, 16)])
def test_prefill(name, sessions, page_size, group, head_dim):
    packing = Packing(tuple(new for new, _ in sessions))
    pages = Pages([new + past for new, past in sessions], 2, page_size, head_dim)
    q = draw(packing.tokens, 2 * group, head_dim, seed=11)
    y = prefill(name, q, pages, packing)
    torch.testing.assert_close(y, pages.expected(q, packing), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["formula", "triton"])
@pytest.mark.parametrize(("dtype", "bounds"), [(torch.bfloat16, BF16), (FP8, {"rtol": 1e-5, "atol": 1e-5})])
def test_prefill_narrow_pages(name, dtype, bounds):
    packing = Packing((20, 7))
    pages = Pages((50, 20), 2, 16, 32, dtype=dtype)
    qkv = draw(27, 8, 32, seed=12, dtype=torch.float32 if dtype == FP8 else dtype)
    y = prefill(name, qkv[:, 1:7], pages, packing)
    torch.testing.assert_close(y, pages.expected(qkv[:, 1:7], packing), **bounds)


def test_prefill_without_library_kernels():
    """Where none of them works, the kernel of our own takes over."""
    packing = Packing((9,))
    pages = Pages((30,), 1, 16, 16)
    q = draw(9, 2, 16, seed=13)
    assert library.working_way(q.device, q.dtype, 2, 1, 16) is None
    y = prefill(None, q, pages, packing)
    torch.testing.assert_close(y, pages.expected(q, packing), rtol=1e-5, atol=1e-5)


def test_short_sequences_beside_long_ones(monkeypatch):
    """Short ones go into one launch of our own kernel, and the library takes the others."""
    monkeypatch.setattr(attention_prefill, "working_way", lambda *_: "formula")
    monkeypatch.setattr(attention_prefill, "SHORT_NEW", 8)
    monkeypatch.setattr(attention_prefill, "SHORT_TUNING", PrefillTuning(rows=16, block=32))
    by_library = []
    monkeypatch.setattr(attention_prefill, "attend", lambda q, *_: by_library.append(len(q)) or attend(q, *_))
    for new in ((5, 20, 8, 0, 9), (5, 8), (20, 9)):
        packing, by_library[:] = Packing(new), []
        pages = Pages([count + 13 for count in new], 2, 16, 16)
        q = draw(packing.tokens, 4, 16, seed=14)
        torch.testing.assert_close(prefill(None, q, pages, packing), pages.expected(q, packing), rtol=1e-5, atol=1e-5)
        assert by_library == [count for count in new if count > 8]


def test_prefill_of_nothing():
    pages = Pages((3,), 1, 16, 16)
    assert prefill("formula", draw(0, 2, 16, seed=0), pages, Packing((0,))).shape == (0, 2, 16)


@pytest.mark.parametrize(("new", "past"), [(5, 3), (8, 8), (7, 30)])
def test_cut_history(new, past):
    """Cutting the history at a multiple and padding the queries changes nothing."""
    q, k, v = draw(new, 4, 16, seed=0), draw(2, new + past, 16, seed=1), draw(2, new + past, 16, seed=2)
    way = library.Way(library.formula, library.formula, history_step=8, query_step=4)
    expected = library.formula(q.transpose(0, 1), k, v, True)[0].transpose(0, 1)
    torch.testing.assert_close(attend(q, k, v, way), expected, rtol=1e-5, atol=1e-5)


def test_merge_of_unequal_parts():
    """Where one part outweighs the other beyond what can be represented, it alone is left."""
    a, b = draw(3, 5, 16, seed=0), draw(3, 5, 16, seed=1)
    low, high = torch.full((3, 5), -200.0), torch.full((3, 5), 200.0)
    torch.testing.assert_close(merge(a, low, b, high), b.transpose(0, 1))
    torch.testing.assert_close(merge(a, high, b, low), a.transpose(0, 1))
    torch.testing.assert_close(merge(a, low, b, low), ((a + b) / 2).transpose(0, 1))


@pytest.mark.parametrize("length", [1, 16, 17, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, FP8])
def test_gather(length, dtype):
    pages = Pages((3, length), 3, 16, 16, dtype=dtype)
    k_KED = gather_pages(pages.k, pages.table[1], length, dtype=torch.float32)
    count = -(-length // 16)
    expected = pages.k.float()[pages.table[1, :count]].transpose(1, 2).flatten(0, 1)[:length].transpose(0, 1)
    assert torch.equal(k_KED, expected)
    assert k_KED.stride() == (16, 48, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_write(dtype):
    """Into a layer of a pool, from views of one projection; tokens at -1 leave no trace."""
    qkv = draw(5, 7, 16, seed=0, dtype=dtype)
    k, v = qkv[:, 1:4], qkv[:, 4:7]
    places = torch.tensor([37, 3, -1, 16, 95])
    written = [draw(2, 6, 3, 16, 16, seed=seed, dtype=dtype) for seed in (1, 2)]
    expected = [x.clone() for x in written]
    write_pages(k, v, written[0][1], written[1][1], places)
    keep = places >= 0
    plain.write_pages(k[keep], v[keep], expected[0][1], expected[1][1], places[keep])
    assert torch.equal(written[0], expected[0])
    assert torch.equal(written[1], expected[1])


def test_write_fp8():
    """Rounded as PyTorch rounds, clamped where the format ends."""
    # Just above what the format holds: the interpreter errs where rounding up reaches a power of two.
    k, v = ((80 * draw(6, 2, 16, seed=seed)).to(FP8).float() * 1.02 for seed in (0, 1))
    k[0, 0, 0], k[1, 1, 1], v[2, 0, 3] = float("inf"), -float("inf"), 1e30
    places = torch.tensor([0, 5, 31, 17, 40, 8])
    written, expected = ([torch.zeros(3, 2, 16, 16).to(FP8) for _ in range(2)] for _ in range(2))
    write_pages(k, v, *written, places)
    plain.write_pages(k, v, *expected, places)
    for ours, theirs in zip(written, expected, strict=True):
        assert torch.equal(ours.float(), theirs.float())
        assert not ours.float().isnan().any()


def test_fp8_roundtrip_error():
    """Through 8-bit pages the output moves no more than the weights and values do."""
    length, kv_heads, head_dim = 60, 2, 32
    k, v = draw(length, kv_heads, head_dim, seed=0), draw(length, kv_heads, head_dim, seed=1)
    q = draw(1, 6, head_dim, seed=2)
    k_pages, v_pages = (torch.zeros(4, kv_heads, 16, head_dim).to(FP8) for _ in range(2))
    plain.write_pages(k, v, k_pages, v_pages, torch.arange(length))
    y = paged_decode_attention(q, k_pages, v_pages, torch.arange(4)[None], torch.tensor([length]), splits=2)
    exact = plain._attend(q, k, v)
    # e4m3 has 3 bits after the leading one: values are off by 1/16 of themselves at most. A score is off by at most
    # |q|·|k|/16 summed over channels, which moves no weight by more than exp(2 · that).
    shift = (q[0].abs() @ k.abs().repeat_interleave(3, 1).transpose(0, 1).flatten(0, 1).T).max() / 16 / head_dim**0.5
    bound = v.abs().max() * (1 / 16 + (2 * shift).exp() - 1)
    assert (y - exact).abs().max() < bound
    assert (y - exact).norm() / exact.norm() < 0.1
