"""Paged attention, pages and norms on a GPU at the sizes of the real models.

Also a script, for machines without pytest: python tests/ops/test_triton_attention_gpu.py
"""

import math
import sys
import traceback

import torch

try:
    import pytest

    pytest.importorskip("triton")
    pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
except ImportError:
    pass

from holotron.ops.packing import Packing
from holotron.ops.plain import attention as plain_attention
from holotron.ops.plain import norm as plain_norm
from holotron.ops.triton import norm
from holotron.ops.triton.attention_decode import DecodeTuning, paged_decode_attention
from holotron.ops.triton.attention_flash import PrefillTuning, paged_flash_prefill
from holotron.ops.triton.attention_library import WAYS, working_way
from holotron.ops.triton.attention_prefill import paged_prefill_attention
from holotron.ops.triton.pages import gather_pages, write_pages

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
KV_HEADS, HEAD_DIM = 8, 128
# Rounding the result to bf16 alone gives 0.0017 in the relative norm; rounded weights add about as much.
BF16_ERROR = 5e-3


def draw(*shape, seed=0, dtype=BF16):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)


def store(k, v, k_pages, v_pages, places):
    """The plain write_pages; 8-bit pages as bytes, for not every release can index them otherwise."""
    page, offset = places // k_pages.shape[2], places % k_pages.shape[2]
    for x, pages in ((k, k_pages), (v, v_pages)):
        narrow = plain_attention._narrow(x, pages.dtype)
        if pages.dtype == FP8:
            narrow, pages = narrow.view(torch.uint8), pages.view(torch.uint8)
        pages[page, :, offset] = narrow


class Pages:
    """Shuffled pages of sessions of these lengths; all that is not written is NaN."""

    def __init__(self, lengths, page_size=64, dtype=BF16, spare=2):
        counts = [-(-length // page_size) for length in lengths]
        total = sum(counts) + spare
        order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
        self.k = torch.full((total, KV_HEADS, page_size, HEAD_DIM), math.nan, device="cuda", dtype=BF16).to(dtype)
        self.v = self.k.clone()
        self.host_lengths = tuple(lengths)
        self.lengths = torch.tensor(lengths, device="cuda", dtype=torch.int32)
        self.entries = []
        table = torch.full((len(lengths), max(counts) + 1), order.pop(), dtype=torch.int32)
        for i, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            table[i, :count] = torch.tensor([order.pop() for _ in range(count)], dtype=torch.int32)
            k, v = (draw(length, KV_HEADS, HEAD_DIM, seed=2 * i + j) for j in range(2))
            n = torch.arange(length)
            places = table[i].long()[n // page_size] * page_size + n % page_size
            store(k, v, self.k, self.v, places.cuda())
            if dtype == FP8:  # what was stored, not what was meant
                k, v = (plain_attention._narrow(x, FP8).double() for x in (k, v))
            self.entries.append((k, v))
        self.table = table.cuda()

    @property
    def arguments(self):
        return self.k, self.v, self.table

    def expected(self, q_THD, new):
        """The formula in 64 bits, one key/value head at a time."""
        outputs, start = [], 0
        for (k, v), count in zip(self.entries, new, strict=True):
            group = q_THD.shape[1] // KV_HEADS
            heads = []
            for head in range(KV_HEADS):
                q = q_THD[start : start + count, head * group : (head + 1) * group].double().transpose(0, 1)
                scores = q @ k[:, head].double().T / math.sqrt(HEAD_DIM)
                unseen = torch.ones(scores.shape[1:], dtype=torch.bool, device="cuda").triu(len(k) - count + 1)
                heads.append((scores.masked_fill_(unseen, -math.inf).softmax(-1) @ v[:, head].double()).transpose(0, 1))
            outputs.append(torch.cat(heads, 1))
            start += count
        return torch.cat(outputs)


def assert_near(y, expected, bound):
    assert y.isfinite().all(), "not finite"
    error = ((y.double() - expected).norm() / expected.norm()).item()
    assert error < bound, f"relative error {error:.2e}, allowed {bound:.0e}"


LENGTHS = (1, 63, 64, 65, 1024, 25000, 51200)


def test_decode_bf16():
    for page_size in (16, 32, 64):
        pages = Pages(LENGTHS, page_size)
        for heads in (40, 32):
            q = draw(len(LENGTHS), heads, HEAD_DIM, seed=99)
            expected = pages.expected(q, [1] * len(LENGTHS))
            for block, splits in ((32, None), (64, None), (64, 1), (128, 7)):
                y = paged_decode_attention(
                    q, *pages.arguments, pages.lengths, splits=splits, tuning=DecodeTuning(block=block)
                )
                assert_near(y, expected, BF16_ERROR)


def test_decode_fp8():
    pages = Pages(LENGTHS, dtype=FP8)
    q = draw(len(LENGTHS), 40, HEAD_DIM, seed=99)
    expected = pages.expected(q, [1] * len(LENGTHS))
    for block in (64, 128):
        y = paged_decode_attention(q, *pages.arguments, pages.lengths, tuning=DecodeTuning(block=block))
        assert_near(y, expected, BF16_ERROR)


def test_decode_fp32():
    pages = Pages((1, 100, 3000), dtype=torch.float32)
    q = draw(3, 40, HEAD_DIM, seed=99, dtype=torch.float32)
    y = paged_decode_attention(q, *pages.arguments, pages.lengths, tuning=DecodeTuning(block=32, num_stages=2))
    assert_near(y, pages.expected(q, [1] * 3), 1e-5)


def test_decode_of_nothing_is_zero():
    pages = Pages((0, 100))
    y = paged_decode_attention(draw(2, 40, HEAD_DIM), *pages.arguments, pages.lengths)
    assert (y[0] == 0).all()
    assert y.isfinite().all()


def test_decode_far_pages():
    """Offsets of elements beyond 2^31."""
    pages = Pages((500,), spare=36000)
    far = torch.arange(len(pages.k) - 8, len(pages.k), device="cuda", dtype=torch.int32)
    pages.k[far.long()], pages.v[far.long()] = pages.k[pages.table[0, :8].long()], pages.v[pages.table[0, :8].long()]
    q = draw(1, 40, HEAD_DIM, seed=99)
    expected = pages.expected(q, [1])
    assert_near(paged_decode_attention(q, pages.k, pages.v, far[None], pages.lengths), expected, BF16_ERROR)
    arguments = q, pages.k, pages.v, far[None], (500,), Packing((1,))
    assert_near(paged_flash_prefill(*arguments), expected, BF16_ERROR)
    assert_near(paged_prefill_attention(*arguments), expected, BF16_ERROR)


def test_decode_in_a_graph():
    """Captured for four rows, two of them padding; replayed after the lengths have grown."""
    pages = Pages((3000, 900))
    q = draw(4, 40, HEAD_DIM, seed=99)
    table = torch.zeros(4, pages.table.shape[1], device="cuda", dtype=torch.int32)
    table[:2] = pages.table
    lengths = torch.tensor([100, 20, 1, 1], device="cuda", dtype=torch.int32)

    def step():
        return paged_decode_attention(q, pages.k, pages.v, table, lengths)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    lengths[:2] = pages.lengths
    graph.replay()
    torch.cuda.synchronize()
    assert_near(out[:2], pages.expected(q[:2], [1, 1]), BF16_ERROR)


PREFILLS = (((2368, 25000),), ((64, 64), (1, 500), (100, 3000)), ((2368, 2368),), ((300, 2348), (257, 8000)))


def _prefill_everyhow(pages, q, packing):
    arguments = q, *pages.arguments, pages.host_lengths, packing
    for name in WAYS:
        if name != "formula":
            yield name, lambda name=name: paged_prefill_attention(*arguments, way=name)
    for tuning in (PrefillTuning(), PrefillTuning(block=128, num_stages=2), PrefillTuning(rows=64, num_warps=4)):
        yield str(tuning), lambda tuning=tuning: paged_flash_prefill(*arguments, tuning=tuning)


def _check_prefill(pages, sessions, heads, bound=BF16_ERROR):
    new = [count for count, _ in sessions]
    q = draw(sum(new), heads + 2, HEAD_DIM, seed=99)[:, 1:-1]  # a view, as of a joint projection
    expected = pages.expected(q, new)
    failures = []
    for name, compute in _prefill_everyhow(pages, q, Packing(tuple(new))):
        try:
            assert_near(compute(), expected, bound)
        except (AssertionError, RuntimeError, ValueError) as error:
            failures.append(f"{name} at {sessions}: {str(error)[:300]}")
    assert not failures, "\n".join(failures)


def test_prefill_bf16():
    for sessions in PREFILLS:
        for heads in (40, 32):
            _check_prefill(Pages([entries for _, entries in sessions]), sessions, heads)


def test_prefill_fp8():
    sessions = ((1000, 9000),)
    _check_prefill(Pages([9000], dtype=FP8), sessions, 40, 2 * BF16_ERROR)


def test_a_library_kernel_works():
    way = working_way(torch.device("cuda", torch.cuda.current_device()), BF16, 40, KV_HEADS, HEAD_DIM)
    print(f"library kernel in use: {way}")
    assert way is not None


def test_write_and_gather():
    qkv = draw(2368, 56, HEAD_DIM)
    k, v = 3 * qkv[:, 40:48], qkv[:, 48:]
    places = torch.randperm(60 * 64, generator=torch.Generator().manual_seed(0))[:2368].cuda()
    for dtype in (BF16, FP8):
        ours, theirs = ([torch.zeros(60, KV_HEADS, 64, HEAD_DIM, device="cuda").to(dtype) for _ in "kv"] for _ in "ab")
        skipping = places.clone()
        skipping[::7] = -1
        write_pages(k, v, *ours, skipping)
        store(k[skipping >= 0], v[skipping >= 0], *theirs, skipping[skipping >= 0])
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8)), f"{dtype} pages differ"
        row = torch.arange(59, -1, -1, device="cuda")
        entries = gather_pages(ours[0], row, 3000, dtype=BF16)
        expected = theirs[0].to(BF16).flip(0).transpose(1, 2).flatten(0, 1)[:3000].transpose(0, 1)
        assert torch.equal(entries, expected), f"gathered {dtype} pages differ"


def _assert_within_one_step(ours, theirs):
    """Equal, or neighbours among the 16-bit floats."""
    steps = (ours.view(torch.int16).int() - theirs.view(torch.int16).int()).abs()
    assert steps.max() <= 1, f"{(steps > 1).sum().item()} values off by up to {steps.max().item()} steps"
    assert (steps > 0).float().mean() < 1e-3, f"{(steps > 0).float().mean().item():.1e} of all values differ"


def test_norms():
    for tokens in (100, 2368):
        for size in (2688, 5120):
            x, delta, weight = draw(tokens, size), draw(tokens, size, seed=1), draw(size, seed=2)
            _assert_within_one_step(norm.rms_norm(x, weight, 1e-5), plain_norm.rms_norm(x, weight, 1e-5))
            total, y = norm.add_rms_norm(x, delta, weight, 1e-5)
            assert torch.equal(total, x + delta)
            _assert_within_one_step(y, plain_norm.rms_norm(total, weight, 1e-5))
        x, gate, weight = draw(tokens, 10240), draw(tokens, 22656, seed=1)[:, :10240], draw(10240, seed=2)
        ours = norm.gated_rms_norm(x, gate, weight, 1e-5, 8)
        _assert_within_one_step(ours, plain_norm.gated_rms_norm(x, gate, weight, 1e-5, 8))
        x = draw(tokens, 20480)
        assert torch.equal(norm.relu_squared(x), plain_norm.relu_squared(x))


def main() -> int:
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                torch.cuda.synchronize()
                print(f"pass {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL {name}\n{traceback.format_exc(limit=-3)}", flush=True)
            torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
