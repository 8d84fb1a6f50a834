"""The Mamba-2 kernels in Triton, run by its interpreter, against the plain ops.

Whatever a kernel must not touch is checked bit by bit: other slots, other layers, the columns beside a view.
"""

import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is first imported

triton = pytest.importorskip("triton")
if isinstance(triton.language.zeros, triton.JITFunction):
    pytest.skip("Triton was imported to compile, not to interpret", allow_module_level=True)

from triton import language as tl  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

from holotron.ops.packing import Packing  # noqa: E402
from holotron.ops.plain import conv as plain_conv  # noqa: E402
from holotron.ops.plain import mamba as plain_mamba  # noqa: E402
from holotron.ops.plain import scan as plain_scan  # noqa: E402
from holotron.ops.triton import conv, mamba, scan  # noqa: E402

LAYERS, LAYER = 3, 1
few = settings(deadline=None, max_examples=10)


@pytest.fixture
def bfloat16_as_on_the_device(monkeypatch):
    """The interpreter cuts bfloat16 off instead of rounding it, and multiplies its bits as integers."""
    builder = interpreter.InterpreterBuilder
    cast_impl, create_dot = builder.cast_impl, builder.create_dot

    def cast(self, source, target):
        if (source.dtype.scalar, target.scalar) != (tl.float32, tl.bfloat16):
            return cast_impl(self, source, target)
        rounded = torch.from_numpy(np.ascontiguousarray(source.data)).bfloat16()
        return interpreter.TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)

    def dot(self, a, b, *rest):
        wide = (cast_impl(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return create_dot(self, *wide, *rest)

    monkeypatch.setattr(builder, "cast_impl", cast)
    monkeypatch.setattr(builder, "create_dot", dot)


class Draw:
    """Random tensors by seed; views of wider ones whose other columns hold NaN; pools of several layers."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape, dtype=torch.float32):
        return torch.randn(*shape, generator=self.generator).to(dtype)

    def views(self, rows, *widths, dtype=torch.float32):
        wide = torch.full((rows, 3 + sum(widths) + 2), float("nan"), dtype=dtype)
        parts = wide[:, 3:-2].split(widths, dim=-1)
        for part in parts:
            part.copy_(self.normal(*part.shape))
        return parts

    def pool(self, slots, *shape, dtype=torch.float32):
        return self.normal(slots, LAYERS, *shape, dtype=dtype)

    def slots(self, sequences, spare=2):
        order = torch.randperm(sequences + spare, generator=self.generator)
        return order[:sequences], len(order)


def scan_inputs(draw, tokens, heads=4, groups=2, head_dim=20, state_size=8, dtype=torch.float32, decay=4.0):
    x, B, C = draw.views(tokens, heads * head_dim, groups * state_size, groups * state_size, dtype=dtype)
    return [
        x.unflatten(-1, (heads, head_dim)),
        draw.normal(tokens, heads),
        torch.rand(heads, generator=draw.generator).mul(decay),
        B.unflatten(-1, (groups, state_size)),
        C.unflatten(-1, (groups, state_size)),
        draw.normal(heads),
        draw.normal(heads),
    ]


def both(fast, plain, inputs, packing, pools, slots, **options):
    """Each op on pools of its own. Returns the outputs, and the pools after what must not change was compared."""
    results = []
    for op, extra in ((plain, {}), (fast, options)):
        mine = [pool.clone() for pool in pools]
        y = op(*inputs, *packing, *(pool[:, LAYER] for pool in mine), slots, **extra)
        for before, after in zip(pools, mine, strict=True):
            kept = torch.ones(before.shape[:2], dtype=torch.bool)
            kept[slots, LAYER] = False
            assert torch.equal(after[kept], before[kept])
        results.append((y, *mine))
    return results


def assert_near(ours, theirs, tolerance=1e-5):
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    scale = theirs.abs().max().item() if theirs.numel() else 1
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * max(scale, 1))


def error(values, exact):
    return ((values.double() - exact).norm() / exact.norm()).item()


@st.composite
def packings(draw, longest=150):
    lengths = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 63, 64, 65, longest]), min_size=1, max_size=4))
    return Packing(tuple(lengths))


# --- scan ---


@few
@given(
    packing=packings(),
    head_dim=st.sampled_from([4, 20, 80]),
    state_size=st.sampled_from([8, 16]),
    shape=st.sampled_from([(4, 2), (2, 1), (3, 3)]),
    pool_dtype=st.sampled_from([torch.float32, torch.float16]),
    seed=st.integers(0, 99),
)
def test_scan(packing, head_dim, state_size, shape, pool_dtype, seed):
    draw, (heads, groups) = Draw(seed), shape
    slots, total = draw.slots(packing.sequences)
    inputs = scan_inputs(draw, packing.tokens, heads, groups, head_dim, state_size)
    pool = draw.pool(total, heads, head_dim, state_size, dtype=pool_dtype)
    theirs, ours = both(scan.ssd_scan_, plain_scan.ssd_scan_, inputs, (packing, 16), [pool], slots)
    assert_near(ours[0], theirs[0])
    assert_near(ours[1], theirs[1], 1e-5 if pool_dtype == torch.float32 else 2**-10)


@pytest.mark.parametrize("config", [*scan.SCAN_CONFIGS, *scan.SPLIT_CONFIGS], ids=str)
def test_scan_configs(config):
    draw, packing = Draw(1), Packing((130, 7))
    slots, total = draw.slots(2)
    inputs = scan_inputs(draw, packing.tokens, 2, 1, 20, 16)
    pool = draw.pool(total, 2, 20, 16)
    theirs, ours = both(scan.ssd_scan_, plain_scan.ssd_scan_, inputs, (packing, 64), [pool], slots, config=config)
    assert_near(ours[0], theirs[0])
    assert_near(ours[1], theirs[1])


@pytest.mark.usefixtures("bfloat16_as_on_the_device")
def test_scan_in_bfloat16():
    """Scores, state and what is added to it are rounded like the output: four equal errors, so twice one."""
    draw, packing = Draw(2), Packing((150, 40))
    slots, total = draw.slots(2)
    inputs = scan_inputs(draw, packing.tokens, 2, 1, 80, 16, torch.bfloat16, decay=1.0)
    pool = draw.pool(total, 2, 80, 16)
    theirs, ours = both(scan.ssd_scan_, plain_scan.ssd_scan_, inputs, (packing, 64), [pool], slots)
    exact_pool = pool.double()
    wide = [tensor.double() for tensor in inputs]
    exact = plain_scan.ssd_scan_(*wide, packing, 64, exact_pool[:, LAYER], slots)
    assert ours[0].dtype == torch.bfloat16
    assert error(ours[0], exact) < 2 * error(theirs[0], exact) < 4e-3
    assert error(ours[1][slots, LAYER], exact_pool[slots, LAYER]) < 2e-3


def test_scan_of_long_decays():
    """Sums of log decays reach thousands inside a chunk; neighbours must not suffer for it."""
    draw, packing = Draw(3), Packing((128,))
    slots, total = draw.slots(1)
    inputs = scan_inputs(draw, 128, 4, 2, 4, 8)
    inputs[2] = inputs[2] + math.log(4)
    pool = draw.pool(total, 4, 4, 8)
    y = scan.ssd_scan_(*inputs, packing, 64, pool.clone()[:, LAYER], slots)
    wide = [tensor.double() for tensor in inputs]
    exact = plain_scan.ssd_scan_(*wide, packing, 64, pool.double()[:, LAYER], slots)
    assert error(y, exact) < 3e-7


@pytest.mark.parametrize("cut", [1, 64, 99])
def test_scan_in_two_calls(cut):
    draw = Draw(4)
    inputs, pool, slot = scan_inputs(draw, 130, 2, 1), draw.pool(2, 2, 20, 8), torch.tensor([1])
    whole = pool.clone()
    y = scan.ssd_scan_(*inputs, Packing((130,)), 64, whole[:, LAYER], slot)
    halves = []
    for part in (slice(0, cut), slice(cut, 130)):
        x, dt, A_log, B, C, *rest = inputs
        piece = x[part], dt[part], A_log, B[part], C[part], *rest
        halves.append(scan.ssd_scan_(*piece, Packing((len(x[part]),)), 64, pool[:, LAYER], slot))
    assert_near(torch.cat(halves), y)
    assert_near(pool, whole)


def test_scan_without_tokens():
    draw = Draw(5)
    slots, total = draw.slots(2)
    pool = draw.pool(total, 2, 20, 8, dtype=torch.float16)
    inputs = scan_inputs(draw, 0, 2, 1)
    theirs, ours = both(scan.ssd_scan_, plain_scan.ssd_scan_, inputs, (Packing((0, 0)), 64), [pool], slots)
    assert len(ours[0]) == 0
    assert torch.equal(ours[1], theirs[1])


def test_a_broken_sequence_does_not_touch_its_neighbours():
    draw, packing = Draw(6), Packing((5, 70, 3))
    slots, total = draw.slots(3)
    inputs, pool = scan_inputs(draw, 78, 2, 1), draw.pool(total, 2, 20, 8)
    x = draw.normal(78, 11)
    weight, conv_pool = draw.normal(11, 4), draw.pool(total, 11, 3)
    results = []
    for broken in (False, True):
        if broken:
            inputs[0][4], inputs[3][4], x[4] = float("nan"), float("inf"), float("nan")
        ssm, carried = pool.clone(), conv_pool.clone()
        y = scan.ssd_scan_(*inputs, packing, 64, ssm[:, LAYER], slots)
        convolved = conv.causal_conv_(x, weight, None, packing, carried[:, LAYER], slots)
        results.append((y, convolved, ssm, carried))
    (y, convolved, *pools), (hurt_y, hurt_convolved, *hurt_pools) = results
    assert torch.isnan(hurt_y[4]).all()
    assert torch.isnan(hurt_convolved[4]).all()
    assert torch.equal(hurt_y[5:], y[5:])
    assert torch.equal(hurt_convolved[5:], convolved[5:])
    for before, after in zip(pools, hurt_pools, strict=True):
        assert torch.equal(after[slots[1:]], before[slots[1:]])


# --- convolution ---


@few
@given(
    packing=packings(longest=40),
    kernel=st.integers(2, 5),
    with_bias=st.booleans(),
    dtypes=st.sampled_from([(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16)]),
    seed=st.integers(0, 99),
)
def test_conv(packing, kernel, with_bias, dtypes, seed):
    draw, (dtype, pool_dtype) = Draw(seed), dtypes
    slots, total = draw.slots(packing.sequences)
    (x,) = draw.views(packing.tokens, 37, dtype=dtype)
    inputs = [x, draw.normal(37, kernel, dtype=dtype), draw.normal(37, dtype=dtype) if with_bias else None]
    pool = draw.pool(total, 37, kernel - 1, dtype=pool_dtype)
    theirs, ours = both(conv.causal_conv_, plain_conv.causal_conv_, inputs, (packing,), [pool], slots)
    # The interpreter cuts bfloat16 off: one bit in the last place.
    assert_near(ours[0], theirs[0], 1e-6 if dtype == torch.float32 else 2**-7)
    assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("config", conv.CONV_CONFIGS, ids=str)
def test_conv_configs(config):
    draw, packing = Draw(7), Packing((70, 2))
    slots, total = draw.slots(2)
    inputs = [draw.normal(72, 130), draw.normal(130, 4), draw.normal(130)]
    pool = draw.pool(total, 130, 3)
    theirs, ours = both(conv.causal_conv_, plain_conv.causal_conv_, inputs, (packing,), [pool], slots, config=config)
    assert_near(ours[0], theirs[0], 1e-6)
    assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("cut", [1, 2, 16, 19])
def test_conv_in_two_calls(cut):
    draw = Draw(8)
    x, weight, pool, slot = draw.normal(20, 5), draw.normal(5, 4), draw.pool(2, 5, 3), torch.tensor([1])
    whole = pool.clone()
    y = conv.causal_conv_(x, weight, None, Packing((20,)), whole[:, LAYER], slot)
    halves = [
        conv.causal_conv_(part, weight, None, Packing((len(part),)), pool[:, LAYER], slot)
        for part in (x[:cut], x[cut:])
    ]
    assert_near(torch.cat(halves), y, 1e-6)
    assert torch.equal(pool, whole)


# --- one step ---


def step_inputs(draw, rows, heads, groups, head_dim, state_size, kernel=4, with_bias=True, dtype=torch.float32):
    inner = heads * head_dim
    channels = inner + 2 * groups * state_size
    z, xBC, dt = draw.views(rows, inner, channels, heads, dtype=dtype)
    return [
        z,
        xBC,
        dt,
        draw.normal(channels, 1, kernel, dtype=dtype).squeeze(1),
        draw.normal(channels, dtype=dtype) if with_bias else None,
        draw.normal(heads),
        draw.normal(heads),
        draw.normal(heads),
        draw.normal(inner, dtype=dtype),
    ]


def step_pools(draw, slots, inputs, heads, head_dim, state_size, dtype=torch.float32):
    conv_weight = inputs[3]
    conv_pool = draw.pool(slots, len(conv_weight), conv_weight.shape[1] - 1, dtype=inputs[0].dtype)
    return [conv_pool, draw.pool(slots, heads, head_dim, state_size, dtype=dtype)]


def both_steps(inputs, pools, slots, groups, limit=(0.0, float("inf")), **options):
    common = {"groups": groups, "eps": 1e-5, "dt_limit": limit}

    def fast(*args, **options):
        return mamba.mamba_step_(*args, **common, **options)

    def plain(*args):
        return plain_mamba.mamba_step_(*args, **common)

    return both(fast, plain, inputs, (), pools, slots, **options)


@few
@given(
    rows=st.integers(1, 3),
    head_dim=st.sampled_from([4, 20, 80]),
    state_size=st.sampled_from([8, 16]),
    shape=st.sampled_from([(4, 2), (2, 1), (3, 3)]),
    kernel=st.integers(2, 5),
    with_bias=st.booleans(),
    limit=st.sampled_from([(0.0, float("inf")), (0.1, 0.9)]),
    pool_dtype=st.sampled_from([torch.float32, torch.float16]),
    seed=st.integers(0, 99),
)
def test_step(rows, head_dim, state_size, shape, kernel, with_bias, limit, pool_dtype, seed):
    draw, (heads, groups) = Draw(seed), shape
    slots, total = draw.slots(rows)
    inputs = step_inputs(draw, rows, heads, groups, head_dim, state_size, kernel, with_bias)
    pools = step_pools(draw, total, inputs, heads, head_dim, state_size, pool_dtype)
    theirs, ours = both_steps(inputs, pools, slots, groups, limit)
    assert_near(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    assert_near(ours[2], theirs[2], 1e-6 if pool_dtype == torch.float32 else 2**-10)


@pytest.mark.parametrize("config", mamba.STEP_CONFIGS, ids=str)
def test_step_configs(config):
    draw = Draw(9)
    slots, total = draw.slots(2)
    inputs = step_inputs(draw, 2, 3, 1, 80, 16)
    pools = step_pools(draw, total, inputs, 3, 80, 16)
    theirs, ours = both_steps(inputs, pools, slots, 1, config=config)
    assert_near(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])
    assert_near(ours[2], theirs[2])


@pytest.mark.usefixtures("bfloat16_as_on_the_device")
def test_step_in_bfloat16():
    """It rounds where the plain version rounds, so results differ in the last bit at most."""
    draw = Draw(10)
    slots, total = draw.slots(3)
    inputs = step_inputs(draw, 3, 4, 2, 20, 16, dtype=torch.bfloat16)
    pools = step_pools(draw, total, inputs, 4, 20, 16, torch.bfloat16)
    theirs, ours = both_steps(inputs, pools, slots, 2)
    for mine, other in zip(ours, theirs, strict=True):
        assert_near(mine, other, 2**-7)
    assert torch.equal(ours[1], theirs[1])


def test_small_step_sizes_stay_accurate():
    """softplus far below zero, where 1 + exp(x) rounds to 1."""
    draw = Draw(11)
    inputs = step_inputs(draw, 1, 4, 2, 4, 8)
    inputs[2].copy_(torch.tensor([[-20.0, -12.0, -6.0, 30.0]]))
    inputs[7] = torch.zeros(4)
    conv_pool, ssm_pool = step_pools(draw, 1, inputs, 4, 4, 8)
    theirs, ours = both_steps(inputs, [conv_pool, torch.zeros_like(ssm_pool)], torch.tensor([0]), 2)
    torch.testing.assert_close(ours[2], theirs[2], rtol=3e-6, atol=0)


def test_padded_rows_touch_only_the_scratch_slot():
    """A recorded batch is larger than the real one: its other rows all point to slot 0."""
    draw = Draw(12)
    inputs = step_inputs(draw, 5, 2, 1, 20, 8)
    pools = step_pools(draw, 6, inputs, 2, 20, 8)
    real = [tensor[:2] for tensor in inputs[:3]] + inputs[3:]
    slots = torch.tensor([4, 2])
    theirs, _ = both_steps(real, pools, slots, 1)
    mine = [pool.clone() for pool in pools]
    out = torch.full((5, 40), float("nan"))
    padded = torch.cat([slots, torch.zeros(3, dtype=torch.long)])
    y = mamba.mamba_step_(*inputs, *(pool[:, LAYER] for pool in mine), padded, groups=1, eps=1e-5, out=out)
    assert y is out
    assert_near(y[:2], theirs[0])
    assert_near(mine[0][1:], theirs[1][1:])
    assert_near(mine[1][1:], theirs[2][1:])
    for before, after in zip(pools, mine, strict=True):
        assert torch.equal(after[0, [0, 2]], before[0, [0, 2]])
