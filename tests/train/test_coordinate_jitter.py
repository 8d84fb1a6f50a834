"""Coordinates in the action history get noise, and nothing else does."""

from __future__ import annotations

import torch

from holotron.episodes.examples import Example, ExampleTurn
from holotron.model.text.policy_tokenizer import coordinate_token, policy_tokenizer
from holotron.train.batches import BatchBudget, Packer, TrainingBatch
from holotron.train.coordinate_jitter import CoordinateJitter
from holotron.train.sequences import SequenceWriter

from .samples import CONFIG, policy_writer, sample

TOKENIZER = policy_tokenizer(CONFIG)
BUDGET = BatchBudget(tokens=2048, patches=1024, learned=256, sequences=8, images=16, longest=1024)
ASKED = '"x":500,"y":500'


def two_clicks() -> TrainingBatch:
    """The first is not to be learned; a point is in the question, too."""
    image = sample(0).turns[0].image
    turns = (
        ExampleTurn(f"What is at {ASKED}?", '{"action":"click","x":300,"y":0}', image, learn=False),
        ExampleTurn("", '{"action":"click","x":700,"y":1000}', image),
    )
    return Packer(CONFIG, BUDGET).build([SequenceWriter(policy_writer(CONFIG)).write(Example("two", turns))])


def ids(axis: str, *values: int) -> list[int]:
    return [TOKENIZER.id_of(coordinate_token(axis, value)) for value in values]


def test_points_in_answers_move_a_little_and_stay_on_the_screen() -> None:
    batch = two_clicks()
    jitter = CoordinateJitter.of(TOKENIZER, 5.0)
    axes = [ids(axis, 0, 1000) for axis in "xy"]
    moves = []
    for seed in range(300):
        moved_batch = jitter.apply(batch, [seed])
        moved = (moved_batch.token_ids_T != batch.token_ids_T).nonzero().flatten()
        for place in moved.tolist():
            was, now = int(batch.token_ids_T[place]), int(moved_batch.token_ids_T[place])
            assert was not in [*ids("x", 500), *ids("y", 500)], "a question moved"
            assert any(low <= was <= high and low <= now <= high for low, high in axes)
            moves.append(abs(now - was))
        assert torch.equal(moved_batch.targets_N, batch.targets_N), "what is to be learned moved"
    assert 3 <= sum(moves) / len(moves) <= 8
    assert 15 < max(moves) < 100


def test_the_same_seed_moves_them_the_same_way() -> None:
    batch, jitter = two_clicks(), CoordinateJitter.of(TOKENIZER, 5.0)
    first, again, other = (jitter.apply(batch, [0, 1, draws]).token_ids_T for draws in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
