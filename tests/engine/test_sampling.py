"""Sampling follows the distribution it is given, and a generation ends where it should."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from holotron.engine import sampling
from holotron.engine.grammar import Grammar
from holotron.engine.sampling import (
    RowState,
    SampledToken,
    SamplingParams,
    _uniforms,
    sample,
)

VOCAB = 50


def row(
    seed: int = 0, position: int = 0, vocab_size: int = VOCAB, eos_ids: Sequence[int] = (), **kwargs: Any
) -> RowState:
    state = RowState(SamplingParams(**kwargs), vocab_size, seed, eos_ids)
    state.position = position
    return state


def draw(logits_SV: Tensor, rows: Sequence[RowState], bitmask: Tensor | None = None) -> list[SampledToken]:
    return sample(logits_SV, rows, bitmask).read(rows)


def chi_square(counts: Tensor, expected: Tensor) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def limit(freedom: int) -> float:
    """A chi-square this large comes by chance about once in a million (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + 4.75 * math.sqrt(2 / (9 * freedom))) ** 3


# ---- parameters ----


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_k", -1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_tokens", -1),
        ("min_tokens", 129),
        ("seed", 2**64),
        ("logprobs", -1),
        ("logprobs", 21),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", math.nan),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: 101.0}),
        ("stop", ("",)),
        ("stop", "text"),
        ("stop", tuple("abcdefghijklmnopq")),
        ("stop_token_ids", (-1,)),
    ],
)
def test_wrong_parameters_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        SamplingParams(**{name: value})  # type: ignore[arg-type]


def test_a_minimum_length_and_a_grammar_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="grammar"):
        SamplingParams(min_tokens=1, grammar=Grammar.from_schema({"type": "object"}))


def test_ids_beyond_the_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match="no token 50"):
        row(logit_bias={50: 1.0})


# ---- random numbers ----


def test_uniform_numbers_are_uniform_along_positions_and_seeds() -> None:
    for rows in (
        [row(seed=7, position=position) for position in range(20_000)],
        [row(seed=seed, position=3) for seed in range(20_000)],
        [row(seed=seed, position=20_000 - seed) for seed in range(20_000)],
    ):
        numbers = _uniforms(rows)
        assert float(numbers.min()) >= 0
        assert float(numbers.max()) < 1
        counts = torch.histc(numbers, bins=100, min=0, max=1)
        assert chi_square(counts, torch.full((100,), 200.0)) < limit(99)


@pytest.mark.parametrize("lag", [1, 2, 16])
def test_uniform_numbers_are_independent_across_positions_and_seeds(lag: int) -> None:
    for rows in (
        [row(seed=11, position=position) for position in range(20_000)],
        [row(seed=seed) for seed in range(20_000)],
    ):
        cells = (_uniforms(rows) * 10).long()
        counts = torch.bincount(cells[lag:] * 10 + cells[:-lag], minlength=100).double()
        assert chi_square(counts, torch.full((100,), (20_000 - lag) / 100)) < limit(99)


def test_uniform_numbers_are_splitmix64() -> None:
    def reference(seed: int, position: int) -> float:
        def mix(value: int) -> int:
            value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
            value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
            return value ^ value >> 31

        golden = 0x9E3779B97F4A7C15
        return (mix((mix((seed + golden) % 2**64) + (position + 1) * golden) % 2**64) >> 11) / 2**53

    pairs = [(0, 0), (1, 0), (0, 1), (-1, 5), (2**63, 10**6), (2**64 - 1, 2)]
    numbers = _uniforms([row(seed=seed, position=position) for seed, position in pairs]).tolist()
    assert numbers == [reference(seed % 2**64, position) for seed, position in pairs]


# ---- distributions ----

KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0, "top_k": 5},
    {"top_p": 0.7},
    {"min_p": 0.1},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.02, "temperature": 1.5},
    {"logit_bias": {3: 5.0, 4: -100.0}},
]


def expected_distribution(logits: Tensor, params: SamplingParams) -> Tensor:
    """Written another way: one token after the other, from the most likely to the least."""
    logits = logits.double().clone()
    for id_, bias in (params.logit_bias or {}).items():
        logits[id_] += bias
    probabilities = torch.softmax(logits / params.temperature, dim=0)
    order = probabilities.argsort(descending=True).tolist()
    if params.top_k:
        order = order[: params.top_k]
    mass = sum(float(probabilities[id_]) for id_ in order)
    kept, seen = torch.zeros_like(probabilities), 0.0
    for id_ in order:
        if seen < params.top_p * mass and probabilities[id_] >= params.min_p * probabilities.max():
            kept[id_] = probabilities[id_]
        seen += float(probabilities[id_])
    return kept / kept.sum()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_samples_follow_the_distribution(kind: dict[str, Any]) -> None:
    count = 4000
    torch.manual_seed(0)
    logits = torch.randn(VOCAB) * 2
    rows = [row(seed=5, position=position, logprobs=0, **kind) for position in range(count)]
    tokens = draw(logits.expand(count, -1), rows)
    expected = expected_distribution(logits, rows[0].params)
    counts = torch.bincount(torch.tensor([token.token_id for token in tokens]), minlength=VOCAB).double()
    assert not counts[expected == 0].any()
    likely = expected > 5 / count
    assert chi_square(counts[likely], expected[likely] * count) < limit(max(1, int(likely.sum()) - 1))
    for token in tokens[:50]:
        assert token.sampling_logprob == pytest.approx(math.log(expected[token.token_id]), abs=1e-4)
        assert token.logprob == pytest.approx(float(logits.log_softmax(0)[token.token_id]), abs=1e-4)


def test_a_large_top_k_sorts_and_agrees_with_the_small_one() -> None:
    vocab_size = 3000
    torch.manual_seed(1)
    logits = torch.randn(64, vocab_size)
    for top_k in (1024, 1025):
        rows = [row(seed=seed, vocab_size=vocab_size, top_k=top_k) for seed in range(64)]
        threshold = logits.sort(dim=-1, descending=True).values[:, top_k - 1]
        for index, token in enumerate(draw(logits, rows)):
            assert logits[index, token.token_id] >= threshold[index]
            kept = logits[index][logits[index] >= threshold[index]]
            own = float(logits[index, token.token_id] - kept.logsumexp(0))
            assert token.sampling_logprob == pytest.approx(own, abs=1e-4)


@pytest.mark.parametrize("top_k", [60, 2000])
def test_a_top_k_beyond_the_vocabulary_changes_nothing(top_k: int) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0))
    assert draw(logits, [row(3, top_k=top_k)]) == draw(logits, [row(3)])


def test_tokens_that_tie_at_the_edge_stay_together() -> None:
    logits = torch.zeros(100, VOCAB)
    rows = [row(seed=seed, top_k=2) for seed in range(100)]
    assert len({token.token_id for token in draw(logits, rows)}) > 30


def test_extreme_temperatures_and_logits_are_no_trouble() -> None:
    logits = torch.full((4, VOCAB), -1e30)
    logits[:, 7] = 1e30
    rows = [row(temperature=temperature) for temperature in (0.0, 1e-9, 2e-5, 1e6)]
    for token in draw(logits, rows):
        assert token == SampledToken(7, 0.0)


def test_greedy_takes_the_first_of_the_best() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[0, [9, 30]] = 1.0
    assert [token.token_id for token in draw(logits, [row(temperature=0)] * 2)] == [9, 0]


def test_an_impossible_token_is_never_drawn_from_a_full_vocabulary() -> None:
    vocab_size = 131_072
    logits = torch.full((32, vocab_size), -math.inf)
    logits[:, [5, vocab_size - 1]] = 0.0
    tokens = draw(logits, [row(seed=seed, vocab_size=vocab_size) for seed in range(32)])
    assert {token.token_id for token in tokens} == {5, vocab_size - 1}


@pytest.mark.parametrize(("uniform", "expected"), [(0.0, 3), (1 - 2**-53, 5)])
def test_the_ends_of_the_distribution_are_possible_tokens(
    monkeypatch: pytest.MonkeyPatch, uniform: float, expected: int
) -> None:
    monkeypatch.setattr(sampling, "_uniforms", lambda rows: torch.full((len(rows),), uniform, dtype=torch.float64))
    logits = torch.full((1, VOCAB), -math.inf)
    logits[0, [3, 5]] = 0.0
    assert draw(logits, [row()])[0].token_id == expected


# ---- batches ----


@given(st.permutations(range(14)), st.integers(1, 14))
@settings(max_examples=40, deadline=None)
def test_a_row_samples_the_same_alone_and_in_any_batch(order: list[int], size: int) -> None:
    logits = torch.randn(14, VOCAB, generator=torch.Generator().manual_seed(2)) * 3
    kinds: list[dict[str, Any]] = [*KINDS, {"temperature": 0.0}, {"logprobs": 3}, {"frequency_penalty": 1.0}] * 2
    rows = [row(seed=index % 3, position=index, **kinds[index]) for index in range(14)]
    alone = [draw(logits[index : index + 1], [rows[index]])[0] for index in range(14)]
    chosen = order[:size]
    together = draw(logits[chosen], [rows[index] for index in chosen])
    for index, token in zip(chosen, together, strict=True):
        assert token.token_id == alone[index].token_id
        assert token.sampling_logprob == pytest.approx(alone[index].sampling_logprob, abs=1e-5)
        assert [id_ for id_, _ in token.top] == [id_ for id_, _ in alone[index].top]


def test_more_rows_than_are_drawn_at_once() -> None:
    logits = torch.randn(300, VOCAB, generator=torch.Generator().manual_seed(3))
    rows = [row(seed=seed) for seed in range(300)]
    tokens = draw(logits, rows)
    assert tokens == [draw(logits[seed : seed + 1], [rows[seed]])[0] for seed in range(300)]


def test_broken_and_impossible_rows_fail_alone() -> None:
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(4))
    rows = [row(seed=seed, temperature=seed % 2, logprobs=2) for seed in range(6)]
    clean = draw(logits, rows)
    logits[0, 3] = math.nan
    logits[1, 3] = math.nan
    logits[2, 4] = math.inf
    logits[3] = -math.inf
    tokens = draw(logits, rows)
    assert tokens[4:] == clean[4:]
    assert [token.token_id for token in tokens[:4]] == [0] * 4
    assert ["NaN" in str(token.error) for token in tokens] == [True, True, True, False, False, False]
    assert "no token is allowed" in str(tokens[3].error)


def test_the_logits_are_left_as_they_are() -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(5))
    before = logits.clone()
    draw(logits, [row(top_p=0.5, temperature=0.7), row(logit_bias={1: 3.0}), row(presence_penalty=1.0)])
    assert torch.equal(logits, before)


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rows"):
        sample(torch.zeros(1, VOCAB), [row()] * 2)
    with pytest.raises(ValueError, match="bitmask"):
        sample(torch.zeros(1, VOCAB), [row(grammar=Grammar.from_schema({"type": "object"}))])


# ---- what shapes the logits ----


def test_a_bitmask_binds_only_rows_with_a_grammar() -> None:
    logits = torch.zeros(4, VOCAB)
    logits[:, 2] = 9.0
    bitmask = torch.zeros(4, 2, dtype=torch.int32)
    bitmask[:, 0] = -(2**31)  # the token 31
    bitmask[:, 1] = 1  # the token 32
    bitmask[3] = 0
    grammar = Grammar.from_schema({"type": "object"})
    rows = [row(grammar=grammar), row(grammar=grammar, temperature=0), row(temperature=0), row(grammar=grammar)]
    tokens = draw(logits, rows, bitmask)
    assert tokens[0].token_id in (31, 32)
    assert tokens[0].sampling_logprob == pytest.approx(math.log(0.5))
    assert [token.token_id for token in tokens[1:3]] == [31, 2]
    assert "no token is allowed" in str(tokens[3].error)


def test_penalties_count_the_prompt_and_the_output_as_they_should() -> None:
    logits = torch.tensor([[2.0, 2.0, -2.0, 2.0, 0.0]])
    state = RowState(
        SamplingParams(temperature=1.0, repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5),
        5,
        0,
        prompt_ids=[0, 2],
    )
    state.advance([3, 3])
    shaped = torch.tensor([1.0, 2.0, -4.0, 1.0 - 0.25 - 2 * 0.5, 0.0])
    assert state.position == 2
    for position in range(20):
        state.position = position
        token = draw(logits, [state])[0]
        assert token.sampling_logprob == pytest.approx(float(shaped.log_softmax(0)[token.token_id]), abs=1e-5)


def test_the_end_is_banned_until_the_minimum_length() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [1, 2]] = torch.tensor([9.0, 8.0])
    state = row(temperature=0, min_tokens=2, eos_ids=[1], stop_token_ids=(2,))
    chosen = []
    for _ in range(3):
        chosen.append(draw(logits, [state])[0].token_id)
        state.advance(chosen[-1:])
    assert chosen == [0, 0, 1]


def test_logprobs_come_only_where_they_are_asked_for() -> None:
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(6))
    tokens = draw(logits, [row(), row(logprobs=0), row(logprobs=4, temperature=0)])
    own = logits.log_softmax(-1)
    assert (tokens[0].logprob, tokens[0].top, tokens[1].top) == (None, (), ())
    assert tokens[1].logprob == pytest.approx(float(own[1, tokens[1].token_id]), abs=1e-5)
    assert [id_ for id_, _ in tokens[2].top] == own[2].topk(4).indices.tolist()
    assert [value for _, value in tokens[2].top] == pytest.approx(own[2].topk(4).values.tolist(), abs=1e-5)
    assert tokens[2].sampling_logprob == 0.0
    result = sample(logits, [row(temperature=0)] * 3)
    assert result.logprobs_S is None
    assert result.top_ids_SK is None


def test_plain_rows_get_what_the_general_way_gives() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(3))
    logits[1, 7] = math.nan
    logits[2, 9] = math.inf
    logits[3] = -math.inf
    logits[4, 5] = logits[4].max()  # a tie, or the largest itself
    params = SamplingParams(temperature=0.0)
    rows = [RowState(params, 50, seed) for seed in range(6)]
    assert all(row.is_plain for row in rows)
    for banned in ((), (5, 8)):
        plain = sampling.sample_plainly(logits, banned).read()
        general = sample(logits, rows, None, banned).read(rows)
        assert plain == general


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.5},
        {"logit_bias": {3: 1.0}},
        {"logprobs": 0},
        {"presence_penalty": 1.0},
        {"grammar": Grammar("regex", "a")},
        {"min_tokens": 2},
    ],
)
def test_rows_that_are_not_plain(change: dict[str, Any]) -> None:
    params = SamplingParams(**({"temperature": 0.0} | change))
    assert not RowState(params, 50, 1, eos_ids=(2,)).is_plain
