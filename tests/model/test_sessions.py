"""Prefill = prefill in pieces = token by token, for several sessions packed in one batch."""

import os
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holotron.model.batch import Batch, Memory
from holotron.model.model import Model
from holotron.ops import Packing
from tests.process_memory import process_memory

from .tiny import DENSE_TRANSFORMER, draw_tokens, tiny_model

MODELS = {
    "hybrid": tiny_model("M-M*-", seed=3),
    "pure mamba": tiny_model("MM", seed=1),
    "experts": tiny_model("ME*E", seed=2),
    "transformer": tiny_model(seed=4, **DENSE_TRANSFORMER),
}
PAGE = 4
MOST = 24


def continuing(lengths, *, past, slots, pages, page_size, steps) -> Batch:
    """New tokens of sessions with `past` tokens each; the first `steps` bring one."""
    places = [
        table[i // page_size] * page_size + i % page_size
        for length, before, table in zip(lengths, past, pages, strict=True)
        for i in range(before, before + length)
    ]
    entries = [before + length for before, length in zip(past, lengths, strict=True)]
    return Batch(
        Packing(tuple(lengths[steps:])) if lengths[steps:] else None,
        torch.cat([torch.arange(before, end) for before, end in zip(past, entries, strict=True)]),
        steps=steps,
        slots_S=torch.tensor(slots),
        page_table_SM=torch.tensor(pages),
        places_T=torch.tensor(places),
        kv_lengths_S=torch.tensor(entries),
        piece_lengths=tuple(entries[steps:]),
    )


class Sessions:
    """Sessions over one Memory: each owns a slot and a run of pages scattered through the pool."""

    def __init__(self, model: Model, count: int, dtype: torch.dtype = torch.float64):
        per_session = -(-MOST // PAGE)
        self.model = model
        self.memory = Memory.allocate(
            model.config,
            slots=count,
            pages=count * per_session,
            page_size=PAGE,
            dtype=dtype,
            state_dtype=dtype,
        )
        # Session i has pages i, i + count, i + 2·count …: neighbours in the pool belong to others.
        self.pages = [[i + count * j for j in range(per_session)] for i in range(count)]
        self.past = [0] * count

    @torch.no_grad()
    def append(self, tokens: dict[int, list[int]]) -> dict[int, torch.Tensor]:
        """Logits of the new tokens of the sessions named; their memory advances."""
        # Sessions that bring one token go through the ops for single steps, the others through those for pieces.
        who = sorted(tokens, key=lambda i: len(tokens[i]) > 1)
        batch = continuing(
            [len(tokens[i]) for i in who],
            past=[self.past[i] for i in who],
            slots=who,
            pages=[self.pages[i] for i in who],
            page_size=PAGE,
            steps=sum(len(tokens[i]) == 1 for i in who),
        )
        flat = torch.tensor([t for i in who for t in tokens[i]])
        logits = self.model.decoder.logits(self.model(flat, batch, self.memory))
        for i in who:
            self.past[i] += len(tokens[i])
        return dict(zip(who, logits.split([len(tokens[i]) for i in who]), strict=True))


def splits(length: int):
    """All ways to cut a sequence into pieces, as hypothesis draws them."""
    return st.lists(st.integers(1, length), max_size=length).map(lambda cuts: sorted({0, length, *cuts}))


@pytest.mark.parametrize("kind", MODELS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_split_of_any_schedule_equals_one_prefill(kind, data):
    """Sessions of unequal length, each cut at its own places, advance in batches drawn at random."""
    model = MODELS[kind]
    lengths = data.draw(st.lists(st.integers(1, MOST), min_size=1, max_size=3))
    tokens = [draw_tokens(length, seed) for seed, length in enumerate(lengths)]
    with torch.no_grad():
        whole = model.score(tokens)

    cuts = [data.draw(splits(length)) for length in lengths]
    pieces = [[t[a:b] for a, b in pairwise(c)] for t, c in zip(tokens, cuts, strict=True)]
    sessions = Sessions(model, len(tokens))
    got = [[] for _ in tokens]
    while any(pieces):
        waiting = [i for i, rest in enumerate(pieces) if rest]
        who = data.draw(st.lists(st.sampled_from(waiting), min_size=1, max_size=len(waiting), unique=True))
        for i, logits in sessions.append({i: pieces[i].pop(0) for i in who}).items():
            got[i].append(logits)
    for parts, expected in zip(got, whole, strict=True):
        torch.testing.assert_close(torch.cat(parts), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", MODELS)
def test_token_by_token_decode_equals_prefill(kind):
    model = MODELS[kind]
    tokens = [draw_tokens(MOST, 7), draw_tokens(MOST, 8)]
    with torch.no_grad():
        whole = model.score(tokens)
    sessions = Sessions(model, 2)
    steps = [sessions.append({0: [a], 1: [b]}) for a, b in zip(*tokens, strict=True)]
    for i in range(2):
        torch.testing.assert_close(torch.cat([step[i] for step in steps]), whole[i], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("length", [3, 9, 17])
@pytest.mark.parametrize("kind", ["hybrid", "experts"])
def test_float32_agrees_to_rounding(kind, length):
    model = MODELS[kind]
    narrow = tiny_model(model.config.pattern, seed=2, dtype=torch.float32)
    tokens = draw_tokens(length, 5)
    with torch.no_grad():
        (whole,) = narrow.score([tokens])
    sessions = Sessions(narrow, 1, dtype=torch.float32)
    parts = [sessions.append({0: tokens[:2]})[0], *[sessions.append({0: [t]})[0] for t in tokens[2:]]]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-4, atol=1e-5)


def test_sixteen_bit_states_are_a_choice_that_costs_little():
    model = tiny_model("M-M*-", seed=3, dtype=torch.float32)
    tokens = draw_tokens(MOST, 5)
    results = {}
    for state_dtype in (torch.float32, torch.float16):
        sessions = Sessions(model, 1, dtype=torch.float32)
        shape = sessions.memory.ssm_VMHPN
        sessions.memory = Memory(
            shape.to(state_dtype),
            sessions.memory.conv_VMCJ,
            sessions.memory.keys_ANKZD,
            sessions.memory.values_ANKZD,
        )
        results[state_dtype] = torch.cat([sessions.append({0: [t]})[0] for t in tokens])
    wide, narrow = results[torch.float32], results[torch.float16]
    assert 0 < (wide - narrow).abs().max() < 0.02 * wide.abs().max()


def test_memory_is_as_large_as_the_config_says():
    config = MODELS["hybrid"].config
    memory = Memory.allocate(config, slots=3, pages=5, page_size=PAGE, dtype=torch.bfloat16, state_dtype=torch.float32)
    state = 3 * (4 * config.ssm_values + 2 * config.conv_values)
    assert sum(part.nbytes for part in vars(memory).values()) == state + 2 * 5 * PAGE * config.kv_values_per_token


@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_pools_in_host_memory_take_room_where_they_are_written(kv_dtype):
    config, page_size = MODELS["hybrid"].config, 64
    pages = 2**30 // (page_size * config.kv_values_per_token * kv_dtype.itemsize)
    before = process_memory(os.getpid())
    memory = Memory.allocate(config, slots=2, pages=pages, page_size=page_size, kv_dtype=kv_dtype)
    assert memory.keys_ANKZD.nbytes > 0.49 * 2**30
    memory.keys_ANKZD[:, 1] = 1
    assert process_memory(os.getpid()) - before < 2**26
    assert not memory.keys_ANKZD[:, [0, 2, -1]].float().any()
    assert all(part.data_ptr() % 64 == 0 and part.is_contiguous() for part in vars(memory).values())
