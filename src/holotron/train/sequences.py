"""An example as the decoder reads it: token ids, room for its images, and which tokens are to be learned."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from holotron.agent.chat import Message, template_messages
from holotron.episodes.examples import Example, ExampleTurn
from holotron.model.grids import Grid, patch_grid
from holotron.model.image import image_size
from holotron.model.text.conversation import AnsweredTurn, ConversationWriter
from holotron.train.ocr_loss import ocr_labels

# What was sent at a step, the answer (a text to say, or the very tokens that were generated), and whether to learn it.
Exchange = tuple[ListOf[Message], str | ListOf[int], bool]


@dataclass(frozen=True)
class Picture:
    """A screenshot in its file, the grid of patches it will have, and what is written in them, where that is known."""

    png: bytes
    size: tuple[int, int]
    grid: Grid
    ocr_labels: NDArray[np.uint8] | None = None

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
    """Writes conversations as the checkpoint's own tokenizer and chat template do where it is served."""

    def __init__(self, writer: ConversationWriter) -> None:
        config = writer.config
        if config.vision is None or config.vision.mode != "dynamic":
            raise ValueError(f"{config.name} has no vision tower of dynamic resolution; the supervised stages need it")
        self._writer, self._vision = writer, config.vision

    def write(self, example: Example) -> Sequence:
        turns = [(turn.messages, self._answer(turn), turn.learn) for turn in example.turns]
        return self.write_turns(turns, example.kind, example.about.get("writing"))

    def _answer(self, turn: ExampleTurn) -> str | ListOf[int]:
        """The tokens that were generated, where they are this model's: another may have had another vocabulary."""
        ids = turn.answer_ids
        if ids and max(ids) < self._writer.config.vocab_size and self._writer.tokenizer.decode(ids) == turn.answer:
            return ids
        return turn.answer

    def write_turns(
        self, turns: Iterable[Exchange], kind: str = "", writing: Mapping[str, Any] | None = None
    ) -> Sequence:
        """writing: what is written in the pictures, where that is known."""
        pictures: list[Picture] = []
        answered: list[AnsweredTurn] = []
        for messages, answer, learn in turns:
            shown = [self._picture(message.image, writing) for message in messages if message.image is not None]
            sizes = [picture.size for picture in shown]
            answered.append(AnsweredTurn(template_messages(messages), sizes, answer, learn))
            pictures += shown
        example = self._writer.write_example(answered)
        return Sequence(np.array(example.token_ids), np.array(example.learn, dtype=np.bool_), tuple(pictures), kind)

    def _picture(self, png: bytes, writing: Mapping[str, Any] | None) -> Picture:
        size = image_size(png)
        grid = patch_grid(*size, self._vision)
        return Picture(png, size, grid, None if writing is None else ocr_labels(writing, size, grid))
