"""The carried convolution is the plain one over the whole sequence."""

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from holotron.ops import Packing
from holotron.ops.plain.conv import causal_conv, causal_conv_step


def whole(x_LC, weight_CK, bias_C, state_CJ):
    """torch's own convolution over state and tokens together."""
    if not len(x_LC):
        return x_LC
    rows = torch.cat([state_CJ, x_LC.T], dim=1)
    return F.silu(F.conv1d(rows[None], weight_CK[:, None], bias_C, groups=len(weight_CK))[0].T)


def draw(lengths, channels, kernel, seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    state = normal(len(lengths), channels, kernel - 1)
    return normal(sum(lengths), channels), normal(channels, kernel), normal(channels), state


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=4).filter(lambda lengths: sum(lengths) > 0),
    kernel=st.integers(2, 5),
    with_bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_equals_the_whole_convolution(lengths, kernel, with_bias, seed):
    packing = Packing(tuple(lengths))
    x, weight, bias, state = draw(lengths, 3, kernel, seed)
    bias = bias if with_bias else None
    y, final = causal_conv(x, weight, bias, packing, state)
    for s, (start, end) in enumerate(zip(packing.starts, packing.starts[1:], strict=False)):
        torch.testing.assert_close(y[start:end], whole(x[start:end], weight, bias, state[s]))
        rows = torch.cat([state[s], x[start:end].T], dim=1)
        assert torch.equal(final[s], rows[:, rows.shape[1] - kernel + 1 :])


def test_starts_from_zero_without_a_state():
    x, weight, bias, state = draw([4], 3, 4, 0)
    y, _ = causal_conv(x, weight, bias, Packing((4,)))
    torch.testing.assert_close(y, whole(x, weight, bias, torch.zeros_like(state[0])))


def test_steps_equal_the_whole():
    x, weight, bias, state = draw([6], 3, 4, 1)
    y, final = causal_conv(x, weight, bias, Packing((6,)), state)
    for t in range(6):
        step, state = causal_conv_step(x[t : t + 1], weight, bias, state)
        torch.testing.assert_close(step[0], y[t])
    assert torch.equal(state, final)


def test_no_tokens_leave_the_states_as_they_are():
    x, weight, bias, state = draw([0, 0], 3, 4, 0)
    y, final = causal_conv(x, weight, bias, Packing((0, 0)), state)
    assert y.shape == (0, 3)
    assert torch.equal(final, state)


def test_a_broken_sequence_does_not_touch_its_neighbours():
    x, weight, bias, state = draw([5, 2, 3], 3, 4, 3)
    packing = Packing((5, 2, 3))
    y, final = causal_conv(x, weight, bias, packing, state)
    x[4] = float("nan")
    hurt_y, hurt_final = causal_conv(x, weight, bias, packing, state)
    assert torch.isnan(hurt_y[4]).all()
    assert torch.equal(hurt_y[5:], y[5:])
    assert torch.equal(hurt_final[1:], final[1:])


def test_gradients():
    x, weight, bias, state = (t.requires_grad_() for t in draw([2, 3], 2, 3, 2))
    packing = Packing((2, 3))
    assert torch.autograd.gradcheck(lambda *t: causal_conv(t[0], t[1], t[2], packing, t[3]), (x, weight, bias, state))
