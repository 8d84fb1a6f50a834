"""Adds Laplace noise to coordinates in the action history.

Oracles click on the very middle of things and policies nearly there. A policy that learns from oracles alone takes the
exact middle for a sign that a click succeeded, and clicks again and again where its own was a pixel off, instead of
looking at the screen. So coordinates that stand in a sequence as already said get noise; those to be learned do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from holotron.actions.coordinates import SCALE
from holotron.model.text.policy_tokenizer import ANSWER, END
from holotron.model.text.tokenizer import Tokenizer
from holotron.train.batches import TrainingBatch
from holotron.train.loss import Coordinates


@dataclass(frozen=True)
class CoordinateJitter:
    """scale: the mean distance that a coordinate is moved, in thousandths; a few move much further."""

    scale: float
    coordinates: Coordinates
    answer: int
    end: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, scale: float) -> CoordinateJitter:
        return cls(scale, Coordinates.of(tokenizer), tokenizer.id_of(ANSWER), tokenizer.id_of(END))

    def apply(self, batch: TrainingBatch, seed: list[int]) -> TrainingBatch:
        """The batch with noise on the coordinates in answers; questions and what is to be learned stay."""
        ids_T = batch.token_ids_T.numpy().copy()
        words_T = (np.arange(len(ids_T)) < batch.used_tokens) & ~batch.is_image_T.numpy()
        answered_T = np.cumsum((ids_T == self.answer) & words_T) > np.cumsum((ids_T == self.end) & words_T)
        chance = np.random.default_rng(seed)
        for first in self.coordinates.first_ids:
            here = np.flatnonzero(answered_T & words_T & (ids_T >= first) & (ids_T <= first + SCALE))
            off = np.rint(chance.laplace(scale=self.scale, size=len(here))).astype(np.int64)
            ids_T[here] = first + np.clip(ids_T[here] - first + off, 0, SCALE)
        return replace(batch, token_ids_T=torch.from_numpy(ids_T))
