"""The chunked scan is the recurrence it claims to be, forwards and backwards, whatever the chunks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holotron.ops import Packing, discretize
from holotron.ops.plain.scan import ssd_scan, ssd_step

settings.register_profile("ops", deadline=None, max_examples=60)
settings.load_profile("ops")


def draw_inputs(lengths, heads=4, groups=2, head_dim=3, state_size=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    tokens = sum(lengths)
    return {
        "x_THP": normal(tokens, heads, head_dim),
        "dt_TH": discretize(normal(tokens, heads), normal(heads), (0.0, float("inf"))),
        "A_H": -torch.rand(heads, generator=generator, dtype=dtype).mul(4).exp(),
        "B_TGN": normal(tokens, groups, state_size),
        "C_TGN": normal(tokens, groups, state_size),
        "D_H": normal(heads),
    }, normal(len(lengths), heads, head_dim, state_size)


def recurrence(x_THP, dt_TH, A_H, B_TGN, C_TGN, D_H, packing, state_SHPN):
    """The definition, one token at a time: outputs, and the state after every token of every sequence."""
    per_group = x_THP.shape[1] // B_TGN.shape[1]
    outputs, states = [], []
    for sequence in range(packing.sequences):
        state, seen = state_SHPN[sequence], [state_SHPN[sequence]]
        for t in range(packing.starts[sequence], packing.starts[sequence + 1]):
            B, C = B_TGN[t].repeat_interleave(per_group, 0), C_TGN[t].repeat_interleave(per_group, 0)
            decay = (dt_TH[t] * A_H).exp()[:, None, None]
            state = decay * state + dt_TH[t][:, None, None] * x_THP[t][:, :, None] * B[:, None, :]
            outputs.append((state * C[:, None, :]).sum(-1) + D_H[:, None] * x_THP[t])
            seen.append(state)
        states.append(seen)
    return torch.stack(outputs) if outputs else x_THP, states


lengths_strategy = st.lists(st.integers(0, 13), min_size=1, max_size=4).filter(lambda lengths: sum(lengths) > 0)


@given(lengths=lengths_strategy, chunk=st.integers(1, 9), seed=st.integers(0, 99))
def test_equals_the_recurrence(lengths, chunk, seed):
    packing = Packing(tuple(lengths))
    inputs, state = draw_inputs(lengths, seed=seed)
    y, final = ssd_scan(**inputs, packing=packing, chunk_size=chunk, state_SHPN=state)
    expected, states = recurrence(**inputs, packing=packing, state_SHPN=state)
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    for s, seen in enumerate(states):
        torch.testing.assert_close(final[s], seen[-1], rtol=1e-10, atol=1e-10)


def test_starts_from_zero_without_a_state():
    inputs, state = draw_inputs([5, 2])
    packing = Packing((5, 2))
    y, final = ssd_scan(**inputs, packing=packing, chunk_size=4)
    expected, states = recurrence(**inputs, packing=packing, state_SHPN=torch.zeros_like(state))
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(final[1], states[1][-1])


def test_one_token_is_one_step():
    inputs, state = draw_inputs([1, 1, 1])
    y, final = ssd_scan(**inputs, packing=Packing((1, 1, 1)), chunk_size=4, state_SHPN=state)
    stepped, new_state = ssd_step(*inputs.values(), state)
    torch.testing.assert_close(stepped, y)
    torch.testing.assert_close(new_state, final)


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_gradients(chunk):
    inputs, state = draw_inputs([4, 3], heads=2, groups=1, head_dim=2, state_size=2)
    packing = Packing((4, 3))
    values = [tensor.requires_grad_() for tensor in (*inputs.values(), state)]

    def run(*tensors):
        return ssd_scan(*tensors[:6], packing, chunk, tensors[6])

    assert torch.autograd.gradcheck(run, values)


def test_long_float32_decays_stay_accurate():
    """Sums of log decays reach thousands inside a chunk; neighbours must not suffer for it."""
    lengths = [256]
    inputs, state = draw_inputs(lengths, dtype=torch.float64)
    inputs["A_H"] = inputs["A_H"] * 4
    packing = Packing(tuple(lengths))
    expected, _ = recurrence(**inputs, packing=packing, state_SHPN=state)
    narrow = {name: tensor.float() for name, tensor in inputs.items()}
    y, _ = ssd_scan(**narrow, packing=packing, chunk_size=128, state_SHPN=state.float())
    error = (y.double() - expected).norm() / expected.norm()
    assert error < 2e-7, error


def test_a_broken_sequence_does_not_touch_its_neighbours():
    inputs, state = draw_inputs([5, 6, 3])
    packing = Packing((5, 6, 3))
    y, final = ssd_scan(**inputs, packing=packing, chunk_size=4, state_SHPN=state)
    inputs["x_THP"] = inputs["x_THP"].clone()
    inputs["x_THP"][0] = float("nan")
    hurt_y, hurt_final = ssd_scan(**inputs, packing=packing, chunk_size=4, state_SHPN=state)
    assert torch.isnan(hurt_y[0]).all()
    assert torch.equal(hurt_y[5:], y[5:])
    assert torch.equal(hurt_final[1:], final[1:])


def test_no_tokens_leave_the_states_as_they_are():
    inputs, state = draw_inputs([0, 0])
    y, final = ssd_scan(**inputs, packing=Packing((0, 0)), chunk_size=4, state_SHPN=state)
    assert y.shape == (0, 4, 3)
    assert torch.equal(final, state)


def test_half_precision_accumulates_in_float32():
    inputs, state = draw_inputs([40], dtype=torch.float32)
    narrow = {name: t.bfloat16() if name in ("x_THP", "B_TGN", "C_TGN") else t for name, t in inputs.items()}
    wide = {name: t.float() for name, t in narrow.items()}
    y, final = ssd_scan(**narrow, packing=Packing((40,)), chunk_size=8, state_SHPN=state)
    exact, exact_final = ssd_scan(**wide, packing=Packing((40,)), chunk_size=8, state_SHPN=state)
    assert y.dtype == torch.bfloat16
    assert final.dtype == torch.float32
    assert torch.equal(y, exact.bfloat16())
    assert torch.equal(final, exact_final)


def test_dt_limits():
    dt = torch.tensor([[-5.0, 0.0, 5.0]])
    assert torch.equal(discretize(dt, torch.zeros(3), (0.0, float("inf"))), torch.nn.functional.softplus(dt))
    limited = discretize(dt, torch.zeros(3), (0.1, 2.0))
    assert limited.min() == pytest.approx(0.1)
    assert limited.max() == pytest.approx(2.0)


@pytest.mark.parametrize("lengths", [(), (-1,), (3, -2)])
def test_bad_packings_are_refused(lengths):
    with pytest.raises(ValueError, match="length"):
        Packing(lengths)
