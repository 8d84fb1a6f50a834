"""The Mamba-2 kernels on a GPU at the shapes of the real model, against the plain ops in float64.

Also a script, for machines without pytest: python tests/ops/test_triton_mamba_gpu.py
"""

import sys
import traceback

import torch
import torch.nn.functional as F

try:
    import pytest

    pytest.importorskip("triton")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device", allow_module_level=True)
    pytestmark = pytest.mark.gpu
except ImportError:
    pass

from holotron.ops.packing import Packing
from holotron.ops.plain import conv as plain_conv
from holotron.ops.plain import mamba as plain_mamba
from holotron.ops.plain import scan as plain_scan
from holotron.ops.triton import conv, mamba, scan

BF16 = torch.bfloat16
HEADS, HEAD_DIM, STATE, GROUPS, KERNEL = 128, 80, 128, 8, 4
INNER, SHARED = HEADS * HEAD_DIM, GROUPS * STATE
CHANNELS = INNER + 2 * SHARED
LAYERS, LAYER = 3, 1
SESSIONS = 100
# Rounding the result alone gives 0.0017; the scan also rounds its scores, its state and what it adds to it.
BF16_ERROR = 1e-2
NOT_WORSE = 1.5
BATCHES = [(2368,), (2368, 0, 1, 64, 900)]


def device():
    return torch.device("cuda")


def draw(*shape, seed=0, dtype=BF16):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda").to(dtype)


def error(values, exact):
    return ((values.double() - exact).norm() / exact.norm()).item()


def check(name, ours, plain, exact):
    mine, theirs = error(ours, exact), error(plain, exact)
    print(f"    {name}: error {mine:.2e}, plain {theirs:.2e}")
    assert mine < BF16_ERROR, (name, mine)
    assert mine < NOT_WORSE * theirs + 1e-7, (name, mine, theirs)


def pool_of(slots, *shape, dtype, seed=0):
    return draw(slots, LAYERS, *shape, seed=seed, dtype=dtype)


def unchanged(before, after, touched):
    kept = torch.ones(before.shape[:2], dtype=torch.bool, device="cuda")
    kept[touched, LAYER] = False
    return torch.equal(before[kept], after[kept])


def scan_case(lengths):
    packing = Packing(lengths, device())
    tokens = packing.tokens
    xBC = F.silu(draw(tokens, CHANNELS, seed=1, dtype=torch.float32)).to(BF16)
    x, B, C = xBC.split([INNER, SHARED, SHARED], dim=-1)
    wide = draw(tokens, INNER + CHANNELS + HEADS, seed=2)
    inputs = [
        x.unflatten(-1, (HEADS, HEAD_DIM)),
        wide[:, -HEADS:],
        torch.linspace(1, 16, HEADS, device="cuda").log(),
        B.unflatten(-1, (GROUPS, STATE)),
        C.unflatten(-1, (GROUPS, STATE)),
        draw(HEADS, seed=3, dtype=torch.float32),
        torch.full((HEADS,), -3.0, device="cuda"),
    ]
    order = torch.randperm(len(lengths) + 2, generator=torch.Generator().manual_seed(0)).cuda()
    return packing, inputs, order[: len(lengths)], len(order)


def compare_scan(lengths, pool_dtype, configs):
    packing, inputs, slots, total = scan_case(lengths)
    pool = pool_of(total, HEADS, HEAD_DIM, STATE, dtype=pool_dtype)
    rest = packing, 64
    exact_pool = pool[:, LAYER].double()
    exact = plain_scan.ssd_scan_(*(t.double() for t in inputs), *rest, exact_pool, slots)
    plain_pool = pool.clone()
    plain = plain_scan.ssd_scan_(*inputs, *rest, plain_pool[:, LAYER], slots)
    for config in configs:
        our_pool = pool.clone()
        ours = scan.ssd_scan_(*inputs, *rest, our_pool[:, LAYER], slots, config=config)
        check(f"{config} {pool_dtype} y", ours, plain, exact)
        assert unchanged(pool, our_pool, slots)
        for slot in slots.tolist():
            got, want = our_pool[slot, LAYER], exact_pool[slot]
            assert error(got, want) < BF16_ERROR, (slot, error(got, want))


def test_scan():
    for lengths in BATCHES:
        for pool_dtype in (torch.float32, torch.float16):
            compare_scan(lengths, pool_dtype, [None])


def test_scan_of_many_sequences():
    compare_scan(tuple(17 * n % 301 for n in range(60)), torch.float16, [None, scan.SPLIT_CONFIGS[0]])


def test_scan_configs():
    compare_scan((500, 130), torch.float32, [*scan.SCAN_CONFIGS, *scan.SPLIT_CONFIGS])


def test_scan_in_float32():
    packing, inputs, slots, total = scan_case((200, 70))
    inputs = [t.float() for t in inputs]
    pool = pool_of(total, HEADS, HEAD_DIM, STATE, dtype=torch.float32)
    exact_pool = pool[:, LAYER].double()
    exact = plain_scan.ssd_scan_(*(t.double() for t in inputs), packing, 64, exact_pool, slots)
    small = scan.ScanConfig(64, 16, 4, 1)
    ours = scan.ssd_scan_(*inputs, packing, 64, pool[:, LAYER], slots, config=small)
    assert error(ours, exact) < 1e-5
    assert error(pool[slots, LAYER], exact_pool[slots]) < 1e-5


def test_a_broken_sequence_does_not_touch_its_neighbours():
    packing, inputs, slots, total = scan_case((130, 70))
    pool = pool_of(total, HEADS, HEAD_DIM, STATE, dtype=torch.float16)
    hurt = pool.clone()
    y = scan.ssd_scan_(*inputs, packing, 64, pool[:, LAYER], slots)
    inputs[0][129] = float("nan")
    hurt_y = scan.ssd_scan_(*inputs, packing, 64, hurt[:, LAYER], slots)
    assert torch.equal(hurt_y[130:], y[130:])
    assert torch.equal(hurt[slots[1]], pool[slots[1]])


def test_conv():
    for lengths in BATCHES:
        packing = Packing(lengths, device())
        wide = draw(packing.tokens, INNER + CHANNELS + HEADS, seed=4)
        x, weight, bias = wide[:, INNER : INNER + CHANNELS], draw(CHANNELS, KERNEL, seed=5), draw(CHANNELS, seed=6)
        slots = torch.arange(len(lengths), device="cuda") + 1
        pool = pool_of(2 + len(lengths), CHANNELS, KERNEL - 1, dtype=BF16)
        exact_pool = pool[:, LAYER].double()
        exact = plain_conv.causal_conv_(x.double(), weight.double(), bias.double(), packing, exact_pool, slots)
        plain_pool = pool.clone()
        plain = plain_conv.causal_conv_(x, weight, bias, packing, plain_pool[:, LAYER], slots)
        for config in conv.CONV_CONFIGS:
            our_pool = pool.clone()
            ours = conv.causal_conv_(x, weight, bias, packing, our_pool[:, LAYER], slots, config=config)
            check(f"{config}", ours, plain, exact)
            assert torch.equal(our_pool, plain_pool)


def step_case(rows):
    wide = draw(rows, INNER + CHANNELS + HEADS, seed=7)
    z, xBC, dt = wide.split([INNER, CHANNELS, HEADS], dim=-1)
    return [
        z,
        xBC,
        dt,
        draw(CHANNELS, 1, KERNEL, seed=8).squeeze(1),
        draw(CHANNELS, seed=9),
        torch.linspace(1, 16, HEADS, device="cuda").log(),
        draw(HEADS, seed=10, dtype=torch.float32),
        draw(HEADS, seed=11, dtype=torch.float32) - 3,
        draw(INNER, seed=12),
    ]


def compare_steps(rows, pool_dtype, configs):
    inputs, slots = step_case(rows), torch.randperm(rows + 3, device="cuda")[:rows]
    conv_pool = pool_of(rows + 3, CHANNELS, KERNEL - 1, dtype=BF16, seed=13)
    ssm_pool = pool_of(rows + 3, HEADS, HEAD_DIM, STATE, dtype=pool_dtype, seed=14)
    options = {"groups": GROUPS, "eps": 1e-5}
    exact_conv, exact_ssm = conv_pool[:, LAYER].double(), ssm_pool[:, LAYER].double()
    exact = plain_mamba.mamba_step_(*(t.double() for t in inputs), exact_conv, exact_ssm, slots, **options)
    plain_pools = conv_pool.clone(), ssm_pool.clone()
    plain = plain_mamba.mamba_step_(*inputs, *(pool[:, LAYER] for pool in plain_pools), slots, **options)
    for config in configs:
        our_pools = conv_pool.clone(), ssm_pool.clone()
        ours = mamba.mamba_step_(*inputs, *(pool[:, LAYER] for pool in our_pools), slots, **options, config=config)
        check(f"{config} {pool_dtype} y", ours, plain, exact)
        check("states", our_pools[1][slots, LAYER], plain_pools[1][slots, LAYER], exact_ssm[slots])
        assert torch.equal(our_pools[0], plain_pools[0])
        assert unchanged(ssm_pool, our_pools[1], slots)


def test_step():
    for pool_dtype in (torch.float32, torch.float16):
        compare_steps(SESSIONS, pool_dtype, [None])
        compare_steps(1, pool_dtype, [None])


def test_step_configs():
    compare_steps(9, torch.float16, mamba.STEP_CONFIGS)
    compare_steps(9, torch.float32, mamba.STEP_CONFIGS)


def test_step_in_a_graph():
    """Recorded once for eight rows, replayed with other inputs and slots; spare rows share slot 0."""
    rows, real = 8, 5
    inputs, slots = step_case(rows), torch.zeros(rows, dtype=torch.long, device="cuda")
    conv_pool = pool_of(rows + 1, CHANNELS, KERNEL - 1, dtype=BF16, seed=13)
    ssm_pool = pool_of(rows + 1, HEADS, HEAD_DIM, STATE, dtype=torch.float16, seed=14)
    out = torch.empty(rows, INNER, dtype=BF16, device="cuda")
    before = conv_pool.clone(), ssm_pool.clone()

    def step(conv_pool, ssm_pool, out):
        pools = conv_pool[:, LAYER], ssm_pool[:, LAYER]
        return mamba.mamba_step_(*inputs, *pools, slots, groups=GROUPS, eps=1e-5, out=out)

    step(conv_pool, ssm_pool, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(conv_pool, ssm_pool, out)
    conv_pool.copy_(before[0])
    ssm_pool.copy_(before[1])
    slots[:real] = torch.tensor([7, 3, 8, 1, 4])
    inputs[1].copy_(draw(rows, CHANNELS, seed=20))
    graph.replay()
    expected = step(*before, torch.empty_like(out))
    assert torch.equal(out[:real], expected[:real])
    assert torch.equal(conv_pool[1:], before[0][1:])
    assert torch.equal(ssm_pool[1:], before[1][1:])


def test_slots_beyond_32_bits():
    """A slot of the real model holds 37 million values: the 59th lies beyond what 32 bits can address."""
    layers, slot = 28, torch.tensor([69], device="cuda")
    pool = torch.zeros(70, layers, HEADS, HEAD_DIM, STATE, dtype=torch.float16, device="cuda")
    conv_pool = torch.zeros(70, layers, CHANNELS, KERNEL - 1, dtype=BF16, device="cuda")
    packing, inputs, *_ = scan_case((3,))
    small = torch.zeros(1, HEADS, HEAD_DIM, STATE, dtype=torch.float16, device="cuda")
    first = torch.tensor([0], device="cuda")
    y = scan.ssd_scan_(*inputs, packing, 64, pool[:, -1], slot)
    assert torch.equal(y, scan.ssd_scan_(*inputs, packing, 64, small, first))
    assert torch.equal(pool[69, -1], small[0])
    small_conv = torch.zeros(1, CHANNELS, KERNEL - 1, dtype=BF16, device="cuda")
    step, options = step_case(1), {"groups": GROUPS, "eps": 1e-5}
    y = mamba.mamba_step_(*step, conv_pool[:, -1], pool[:, -1], slot, **options)
    assert torch.equal(y, mamba.mamba_step_(*step, small_conv, small, first, **options))
    assert torch.equal(pool[69, -1], small[0])
    pool[69, -1] = 0
    assert not pool.any()


def main():
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
                print(f"pass {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
            torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
