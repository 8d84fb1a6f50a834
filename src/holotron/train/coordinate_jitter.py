"""Points as a policy remembers them: a little beside the mark.

Oracles click on the very middle of things and policies nearly there. Whoever learns from oracles alone comes to take
the exact middle for a sign that a click succeeded, and clicks again and again where its own was a pixel off, instead of
looking at the screen. So the points that stand in a sequence as already named tremble; those to be learned do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from holotron.actions.coordinates import SCALE
from holotron.model.text.policy_tokenizer import ANSWER, END
from holotron.model.text.tokenizer import Tokenizer
from holotron.train.batches import Batch
from holotron.train.loss import Coordinates


@dataclass(frozen=True)
class CoordinateJitter:
    """scale: how far points are off at the mean, in thousandths; a few are much further."""

    scale: float
    coordinates: Coordinates
    answer: int
    end: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, scale: float) -> CoordinateJitter:
        return cls(scale, Coordinates.of(tokenizer), tokenizer.id_of(ANSWER), tokenizer.id_of(END))

    def shake(self, batch: Batch, seed: list[int]) -> Batch:
        """The batch with other numbers in what was answered; questions and what is to be learned stay."""
        ids_T = batch.token_ids_T.numpy().copy()
        words_T = batch.is_used_T.numpy() & ~batch.is_image_T.numpy()
        answered_T = np.cumsum((ids_T == self.answer) & words_T) > np.cumsum((ids_T == self.end) & words_T)
        chance = np.random.default_rng(seed)
        for first in self.coordinates.first_ids:
            here = np.flatnonzero(answered_T & words_T & (ids_T >= first) & (ids_T <= first + SCALE))
            off = np.rint(chance.laplace(scale=self.scale, size=len(here))).astype(np.int64)
            ids_T[here] = first + np.clip(ids_T[here] - first + off, 0, SCALE)
        return replace(batch, token_ids_T=torch.from_numpy(ids_T))
