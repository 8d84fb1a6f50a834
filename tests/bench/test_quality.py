"""What `holotron bench quality` counts."""

import numpy as np
import pytest
import torch

from holotron.bench.quality import Differences
from holotron.train.sequences import Sequence


def test_tokens_and_answers_are_compared():
    # Two answers: tokens 1 and 2, and token 4. The row before a token scores it.
    sequence = Sequence(np.array([0, 1, 2, 0, 2]), np.array([False, True, True, False, True]), ())
    before = torch.tensor([[0.0, 5, 0], [0, 0, 5], [0, 0, 0], [0, 0.05, 0], [0, 0, 0]])
    after = before.clone()
    after[3] = torch.tensor([0.05, 0, 0])  # a near tie falls otherwise
    differences = Differences()
    differences.add(before, after, sequence)
    figures = differences.figures()
    assert (figures["answers"], figures["tokens"], figures["clear_tokens"]) == (2, 3, 2)
    assert figures["greedy_tokens_same"] == pytest.approx(2 / 3)
    assert figures["greedy_answers_same"] == 0.5
    assert figures["greedy_clear_tokens_same"] == 1
    assert figures["lead_most_where_not_same"] == pytest.approx(0.05)
    assert figures["logprob_difference_most"] == pytest.approx(0)
    assert 0 < figures["divergence_mean"] < 0.01
