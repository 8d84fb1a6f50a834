"""An example as the decoder reads it: token ids, room for its images, and which tokens are to be learned."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holotron.agent.chat import Message, template_messages
from holotron.env.placement import Placement
from holotron.episodes.examples import Example, ExampleError, ExampleTurn
from holotron.model.config import VisionConfig
from holotron.model.grids import Grid, image_grids
from holotron.model.image import image_size, load_image
from holotron.model.text.conversation import AnsweredTurn, ConversationWriter
from holotron.model.tiling import tower_images
from holotron.train.ocr_loss import Letters

# What was sent at a step, the answer (a text to say, or the very tokens that were generated), and whether to learn it.
Exchange = tuple[ListOf[Message], str | ListOf[int], bool]


@dataclass(frozen=True)
class Picture:
    """A screenshot in its file, and the grids of patches that the tower will see of it: one, or one per tile.

    size: of what is shown: the screenshot, or the canvas of its placement. letters: what is written on it, where that
    is known.
    """

    png: bytes
    size: tuple[int, int]
    vision: VisionConfig
    letters: Letters | None = None
    placement: Placement | None = None

    @cached_property
    def grids(self) -> tuple[Grid, ...]:
        return image_grids(*self.size, self.vision)

    @cached_property
    def name(self) -> str:
        """The same for the same picture, wherever it stands."""
        told = self.png if self.placement is None else self.png + repr(self.placement).encode()
        return f"{hashlib.sha256(told).hexdigest()}-{self.size[0]}x{self.size[1]}"

    @property
    def patches(self) -> int:
        return sum(rows * columns for rows, columns in self.grids)

    def pixels(self) -> NDArray[np.uint8]:
        """[images of the tower, height, width, 3]"""
        image = load_image(self.png)
        return tower_images(image if self.placement is None else self.placement.place(image), self.vision)

    @property
    def ocr_labels(self) -> NDArray[np.uint8] | None:
        """What is written in the patches, where that is known."""
        if self.letters is None or len(self.grids) > 1:
            return None
        return self.letters.labels(self.size, self.grids[0])

    def placed(self, placement: Placement) -> Picture:
        """The same on a canvas."""
        letters = None if self.letters is None else self.letters.placed(placement, self.size)
        return Picture(self.png, placement.size, self.vision, letters, placement)

    @property
    def pixel_size(self) -> tuple[int, int]:
        """The size of what `pixels` gives: that of a tile, the screenshot's own, or the one it is scaled to."""
        if self.vision.mode == "dynamic":
            return self.size
        rows, columns = self.grids[0]
        return columns * self.vision.patch_size, rows * self.vision.patch_size


@dataclass(frozen=True)
class Sequence:
    """learn[i]: whether token i is one that the policy must say. Image tokens stand where pictures come, in order."""

    token_ids: NDArray[np.int64]
    learn: NDArray[np.bool_]
    pictures: tuple[Picture, ...]
    kind: str = ""


class SequenceWriter:
    """Writes conversations as the checkpoint's own tokenizer and chat template do where it is served."""

    def __init__(self, writer: ConversationWriter) -> None:
        self._writer, self._vision = writer, writer.config.vision

    def write(self, example: Example) -> Sequence:
        turns = [(turn.messages, self._answer(turn), turn.learn) for turn in example.turns]
        return self.write_turns(turns, example.kind, example.about.get("writing"), example.template)

    def _answer(self, turn: ExampleTurn) -> str | ListOf[int]:
        """The tokens that were generated, where they are this model's: another may have had another vocabulary."""
        ids = turn.answer_ids
        if ids and max(ids) < self._writer.config.vocab_size and self._writer.tokenizer.decode(ids) == turn.answer:
            return ids
        return turn.answer

    def write_turns(
        self,
        turns: Iterable[Exchange],
        kind: str = "",
        writing: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> Sequence:
        """writing: what is written in the pictures, where that is known. template: variables of the chat template."""
        pictures: list[Picture] = []
        answered: list[AnsweredTurn] = []
        for messages, answer, learn in turns:
            shown = [self._picture(message.image, writing) for message in messages if message.image is not None]
            sizes = [picture.size for picture in shown]
            answered.append(AnsweredTurn(template_messages(messages), sizes, answer, learn))
            pictures += shown
        example = self._writer.write_example(answered, **(template or {}))
        return Sequence(np.array(example.token_ids), np.array(example.learn, dtype=np.bool_), tuple(pictures), kind)

    def _picture(self, png: bytes, writing: Mapping[str, Any] | None) -> Picture:
        if self._vision is None:
            raise ExampleError(f"{self._writer.config.name} has no vision tower, and the example has screenshots")
        return Picture(png, image_size(png), self._vision, None if writing is None else Letters.of(writing))
