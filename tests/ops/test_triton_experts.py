"""The kernels of mixtures of experts, interpreted on the CPU, against the plain ones over drawn shapes and routings."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from holotron.ops.plain import experts as plain
from holotron.ops.triton import experts

TILE = experts.ExpertTile(16, 16, 16)


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def choose(tokens, per_token, count, how, seed=0):
    """Distinct experts of each token: drawn, or the first ones for all tokens, or the last ones."""
    if how == "drawn":
        return draw(tokens, count, seed=seed).topk(per_token).indices
    first = 0 if how == "first" else count - per_token
    return torch.arange(first, first + per_token).expand(tokens, per_token)


def assert_near(ours, x, chosen, weights, *matrices, activation="relu_squared"):
    """Against the formula in 64 bits, within rounding of what each expert adds: the sum may cancel."""
    wide = [None if part is None else part.double() for part in matrices]
    parts = [
        plain.run_experts(
            x.double(), chosen[:, k : k + 1], weights[:, k : k + 1].double(), *wide, activation=activation
        )
        for k in range(chosen.shape[1])
    ]
    error = (ours.double() - torch.stack(parts).sum(0)).norm()
    assert error <= (1e-5 if x.dtype == torch.float32 else 2e-2) * torch.stack(parts).norm() + 1e-6


@settings(max_examples=30)
@given(
    tokens=st.sampled_from([1, 2, 5, 17, 40]),
    shape=st.tuples(st.integers(1, 9), st.sampled_from([16, 24, 40]), st.sampled_from([16, 20, 33])),
    share=st.floats(0, 1),
    how=st.sampled_from(["drawn", "first", "last"]),
    gated=st.booleans(),
    activation=st.sampled_from(["relu_squared", "silu"]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 99),
)
def test_run_experts(tokens, shape, share, how, gated, activation, dtype, seed):
    """Also experts without tokens, all tokens at one expert, one token, and 1 to 8 experts per token."""
    count, width, inner = shape
    per_token = 1 + int(share * (min(8, count) - 1))
    chosen = choose(tokens, per_token, count, how, seed)
    x = draw(tokens, width, seed=seed, dtype=dtype)
    weights = draw(tokens, per_token, seed=seed + 1).sigmoid()
    up, gate = (draw(count, inner, width, seed=seed + i, dtype=dtype) / width**0.5 for i in (2, 3))
    down = draw(count, width, inner, seed=seed + 4, dtype=dtype) / inner**0.5
    arguments = (x, chosen, weights, up, down, gate if gated else None)
    ours = experts.run_experts(*arguments, activation=activation, tile=TILE)
    assert_near(ours, *arguments, activation=activation)


def test_a_token_does_not_see_its_neighbours():
    """The same bits alone, among others, and with the batch turned round; also with another split of the columns.

    In small whole numbers, which add up exactly: the interpreter's products are those of a library that may round a row
    otherwise at another place. That a GPU rounds alike everywhere is tested there.
    """
    count, per_token, width, inner = 4, 2, 24, 20
    x, chosen = draw(33, width).round(), choose(33, per_token, count, "drawn")
    weights = draw(33, per_token, seed=1).round()
    up, down = draw(count, inner, width, seed=2).round(), draw(count, width, inner, seed=3).round()
    whole = experts.run_experts(x, chosen, weights, up, down, tile=TILE)
    alone = experts.run_experts(x[7:8], chosen[7:8], weights[7:8], up, down, tile=TILE)
    turned = experts.run_experts(x.flip(0), chosen.flip(0), weights.flip(0), up, down, tile=TILE)
    assert torch.equal(alone[0], whole[7])
    assert torch.equal(turned.flip(0), whole)


def test_weights_in_views_and_no_tokens():
    """Gate and up as halves of one tensor; a view of some columns as the input."""
    stacked, down = draw(3, 32, 16), draw(3, 16, 16, seed=1)
    gate, up = stacked.chunk(2, dim=1)
    x, chosen, weights = draw(5, 20, seed=2)[:, 2:18], choose(5, 2, 3, "drawn"), draw(5, 2, seed=3)
    ours = experts.run_experts(x, chosen, weights, up, down, gate, activation="silu", tile=TILE)
    assert_near(ours, x, chosen, weights, up, down, gate, activation="silu")
    nothing = (x[:0], chosen[:0], weights[:0], up, down, gate)
    assert experts.run_experts(*nothing).shape == plain.run_experts(*nothing).shape == (0, 16)


@given(
    tokens=st.sampled_from([1, 3, 40]),
    count=st.integers(1, 30),
    share=st.floats(0, 1),
    how=st.sampled_from(["drawn", "first", "last"]),
    rows=st.sampled_from([16, 32]),
)
@settings(max_examples=12)
def test_blocks_hold_every_assignment_once(tokens, count, share, how, rows):
    per_token = 1 + int(share * (min(8, count) - 1))
    chosen = choose(tokens, per_token, count, how).contiguous()
    order, blocks = experts.sort_by_expert(chosen, count, rows)
    assert torch.equal(order.long(), chosen.flatten().argsort(stable=True))
    held = []
    for expert, first, end in blocks.tolist():
        assert end - first <= rows
        assert (chosen.flatten()[order[first:end].long()] == expert).all()
        held += range(first, end)
    assert held == list(range(tokens * per_token))


@given(
    tokens=st.sampled_from([1, 4]),
    groups=st.sampled_from([(1, 1), (1, 1), (2, 1), (4, 2), (3, 3)]),
    size=st.integers(1, 12),
    share=st.floats(0, 1),
    scoring=st.sampled_from(["sigmoid", "softmax"]),
    corrected=st.booleans(),
    normalize=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_route(tokens, groups, size, share, scoring, corrected, normalize, seed):
    count, kept = groups[0] * size, groups[1] * size
    per_token = 1 + int(share * (min(8, kept) - 1))
    logits = draw(tokens, count, seed=seed)
    correction = draw(count, seed=seed + 1) if corrected else None
    options = {"scoring": scoring, "groups": groups[0], "groups_per_token": groups[1]}
    options |= {"normalize": normalize, "scaling": 2.5}
    chosen, weights = experts.route(logits, correction, per_token, **options)
    expected_chosen, expected_weights = plain.route(logits, correction, per_token, **options)
    assert torch.equal(chosen, expected_chosen)
    torch.testing.assert_close(weights, expected_weights)


def test_route_takes_the_first_among_equals_and_stays_inside_with_nan():
    chosen, weights = experts.route(torch.zeros(1, 5), None, 3)
    assert chosen.tolist() == [[0, 1, 2]]
    assert weights.sum().item() == pytest.approx(1)
    chosen, _ = experts.route(torch.full((1, 5), float("nan")), None, 3)
    assert (chosen >= 0).all()
    assert (chosen < 5).all()


def test_tiles_grow_with_the_tokens_of_an_expert():
    """Up to 16 per expert one small block reads the weights once; a prompt of thousands of tokens gets large tiles."""
    rows = [experts.choose_tile(tokens, 6, 128).rows for tokens in (1, 100, 341, 512, 2368, 8192)]
    assert rows == [16, 16, 16, 32, 64, 128]
