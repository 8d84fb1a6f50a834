"""Recorded pages shown otherwise: on a larger canvas or without a margin; their points move along.

A policy whose pages have few sizes learns where things are on them, not how they look. All pictures of an example get
one placement, so that what an episode tells of its earlier steps stays true. Small screens stay as they are: what a
policy is shown of them has no margins (`agent/formats/content.py`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from holotron.actions.coordinates import SCALE
from holotron.agent.formats.content import LARGEST
from holotron.env.placement import Placement, Size
from holotron.suites.kit.variation import OFFSET_BAND, draw_number, draw_padding, draw_placement
from holotron.train.batches import Bunch
from holotron.train.sequences import Picture, Sequence

MARGIN = 0.02  # of a side, which stays around points where a picture is cropped


@dataclass(frozen=True)
class AugmentConfig:
    """share: of the examples, the part that is shown otherwise; 0 leaves all as they were recorded.

    They get a canvas of up to a quarter more than their longer side. crop: the share of them that lose margins instead,
    of up to `cropped` of a side.
    """

    share: float = 0.0
    crop: float = 0.15
    cropped: float = 0.15

    def __post_init__(self) -> None:
        for name in ("share", "crop", "cropped"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1")


@dataclass(frozen=True)
class Augment:
    """first_ids: where the tokens of x and y begin in the vocabulary."""

    config: AugmentConfig
    first_ids: tuple[int, ...]
    image_token_id: int

    def apply(self, bunch: Bunch, seed: str) -> Bunch:
        """The sequences over placed pictures; as they are if nothing was drawn, or for small or unequal ones."""
        chance = random.Random(seed)
        pictures = {id(picture): picture for sequence in bunch for picture in sequence.pictures}
        sizes = {picture.size for picture in pictures.values()}
        if chance.random() >= self.config.share or len(sizes) != 1:
            return bunch
        [size] = sizes
        if max(size) <= LARGEST:
            return bunch
        placement = self._draw(chance, size, [self._points(bunch, axis) for axis in range(2)])
        placed = {name: picture.placed(placement) for name, picture in pictures.items()}
        return tuple(self._moved(sequence, placed, placement, size) for sequence in bunch)

    def _points(self, bunch: Bunch, axis: int) -> NDArray[np.int64]:
        ids = np.concatenate([sequence.token_ids for sequence in bunch])
        first = self.first_ids[axis]
        return ids[(ids >= first) & (ids <= first + SCALE)] - first

    def _draw(self, chance: random.Random, size: Size, points: list[NDArray[np.int64]]) -> Placement:
        if chance.random() < self.config.crop:
            return self._cropped(chance, size, points)
        # The picture is shrunk for the tower anyway: a zoom would only blur it, and takes time.
        longest = round(1.25 * max(size))
        return draw_placement(chance, size, held_out=False, longest=longest, zooms=range(100, 101))

    def _cropped(self, chance: random.Random, size: Size, points: list[NDArray[np.int64]]) -> Placement:
        """Margins are cut off on all sides, none of which holds a point."""
        before, after = [], []
        for side, here in zip(size, points, strict=True):
            low, high = (here.min() / SCALE, here.max() / SCALE) if len(here) else (0.5, 0.5)
            room = [min(self.config.cropped, each - MARGIN) * side for each in (low, 1 - high)]
            cut = [draw_number(chance, range(max(0, int(most)) + 1), OFFSET_BAND, held_out=False) for most in room]
            before.append(cut[0])
            after.append(cut[1])
        width, height = (side - first - last for side, first, last in zip(size, before, after, strict=True))
        return Placement((width, height), -before[0], -before[1], colour=draw_padding(chance, held_out=False))

    def _moved(self, sequence: Sequence, placed: dict[int, Picture], placement: Placement, size: Size) -> Sequence:
        ids = sequence.token_ids.copy()
        for axis, first in enumerate(self.first_ids):
            here = (ids >= first) & (ids <= first + SCALE)
            ids[here] = [first + placement.moved(axis, value, size) for value in (ids[here] - first).tolist()]
        # Another size is another number of image tokens: the first of each picture stands for all of its new ones.
        times, places, begin = np.ones(len(ids), np.int64), np.flatnonzero(ids == self.image_token_id), 0
        pictures = tuple(placed[id(picture)] for picture in sequence.pictures)
        for old, new in zip(sequence.pictures, pictures, strict=True):
            run = places[begin : begin + old.patches // 4]
            times[run] = 0
            times[run[0]] = new.patches // 4
            begin += len(run)
        return replace(
            sequence, token_ids=np.repeat(ids, times), learn=np.repeat(sequence.learn, times), pictures=pictures
        )
