"""The loss: right on words, forgiving on points; the optimisers' parts against what they claim."""

from __future__ import annotations

import math

import pytest
import torch

from holotron.model.text.policy_tokenizer import policy_tokenizer
from holotron.train.loss import Coordinates, losses_of_learned
from holotron.train.optimizer import OptimizerConfig, orthogonal

from .samples import CONFIG

COORDINATES = Coordinates.of(policy_tokenizer(CONFIG))


def test_words_get_the_plain_cross_entropy() -> None:
    logits = torch.randn(5, CONFIG.vocab_size)
    targets = torch.tensor([0, 3, 200, 280, 299 - 1])
    expected = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    assert torch.allclose(losses_of_learned(logits, targets, COORDINATES), expected)
    exact = Coordinates(COORDINATES.first_ids, 0.0)
    points = torch.tensor([COORDINATES.first_ids[0] + 7] * 5)
    expected = torch.nn.functional.cross_entropy(logits, points, reduction="none")
    assert torch.allclose(losses_of_learned(logits, points, exact), expected)


def test_a_near_miss_costs_less_than_a_far_one() -> None:
    first = COORDINATES.first_ids[1]
    target = torch.tensor([first + 500])

    def loss(value: int) -> float:
        logits = torch.zeros(1, CONFIG.vocab_size)
        logits[0, first + value] = 10.0
        return float(losses_of_learned(logits, target, COORDINATES))

    assert loss(500) < loss(502) < loss(506) < loss(900)
    # The middle stays the best answer, at the ends of the scale too.
    assert min(range(480, 521), key=loss) == 500


def test_nothing_is_lost_where_the_bell_is_met() -> None:
    first, sigma = COORDINATES.first_ids[0], COORDINATES.sigma
    logits = torch.full((1, CONFIG.vocab_size), -1e9)
    values = torch.arange(1001)
    logits[0, first : first + 1001] = -((values - 300) ** 2) / (2 * sigma**2)
    assert float(losses_of_learned(logits, torch.tensor([first + 300]), COORDINATES)) == pytest.approx(0, abs=1e-5)


def test_orthogonal_brings_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((3, 16, 40), (2, 40, 16)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(*shape)))
        assert 0.5 < float(values.min()) <= float(values.max()) < 1.5


def test_the_schedule_warms_up_stays_and_decays() -> None:
    config = OptimizerConfig(warmup=10, decay=0.5, floor=0.1)
    factors = [config.factor(step, 100) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[10] == factors[49] == 1.0
    assert factors[75] == pytest.approx(0.1 + 0.9 * 0.5)
    assert math.isclose(config.factor(100, 100), 0.1)
