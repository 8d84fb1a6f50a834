"""A sample as the decoder reads it: token ids, room for its images, and which tokens are to be learned."""

from __future__ import annotations

import io
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from holotron.episodes.examples import Example
from holotron.model.config import ModelConfig
from holotron.model.grids import Grid, patch_grid
from holotron.model.text.chat import Tokenizer
from holotron.train.ocr_loss import glyphs_of

ASK, ANSWER, END = "<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>"


@dataclass(frozen=True)
class Picture:
    """A screenshot in its file, the grid of patches it will have, and what is written in them, where that is known."""

    png: bytes
    size: tuple[int, int]
    grid: Grid
    glyphs: NDArray[np.uint8] | None = None

    def pixels(self) -> NDArray[np.uint8]:
        """[height, width, 3]"""
        with Image.open(io.BytesIO(self.png)) as image:
            return np.asarray(image.convert("RGB"))


@dataclass(frozen=True)
class Sequence:
    """learn[i]: whether token i is one that the policy must say. Image tokens stand where pictures come, in order."""

    token_ids: NDArray[np.int64]
    learn: NDArray[np.bool_]
    pictures: tuple[Picture, ...]
    kind: str = ""


class SequenceWriter:
    """Writes samples as the policy's chat template would, so that a session at work sees what training showed it."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig) -> None:
        if config.vision is None or config.vision.mode != "dynamic":
            raise ValueError(f"{config.name} has no eyes of dynamic resolution; the supervised stages need them")
        self._tokenizer, self._vision = tokenizer, config.vision
        self._ask, self._answer, self._end = (tokenizer.id_of(token) for token in (ASK, ANSWER, END))

    def write(self, sample: Example) -> Sequence:
        ids: list[int] = []
        learn: list[bool] = []
        pictures: list[Picture] = []

        def add(new: ListOf[int], learned: bool = False) -> None:
            ids.extend(new)
            learn.extend([learned] * len(new))

        for turn in sample.turns:
            add([self._ask, *self._tokenizer.encode(turn.said)])
            if turn.image is not None:
                picture = self._picture(turn.image, sample.about.get("writing"))
                pictures.append(picture)
                add(self._room(picture.grid))
            add([self._answer])
            add([*self._tokenizer.encode(turn.answer), self._end], turn.learn)
        return Sequence(np.array(ids), np.array(learn, dtype=np.bool_), tuple(pictures), sample.kind)

    def _picture(self, png: bytes, writing: Mapping[str, Any] | None) -> Picture:
        size = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
        grid = patch_grid(*size, self._vision)
        return Picture(png, size, grid, None if writing is None else glyphs_of(writing, size, grid))

    def _room(self, grid: Grid) -> list[int]:
        vision = self._vision
        start = [] if vision.image_start_token_id is None else [vision.image_start_token_id]
        end = [] if vision.image_end_token_id is None else [vision.image_end_token_id]
        return [*start, *[vision.image_token_id] * (grid[0] * grid[1] // 4), *end]
