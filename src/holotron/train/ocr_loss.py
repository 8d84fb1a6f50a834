"""An OCR loss: the vision tower learns by itself what is written where on a screen.

To read a word, the decoder must find the image tokens that hold it and tell their letters apart, and each is of no use
without the other. Where a page can say which characters stand where, the second is taught directly: from each image
token alone, a head predicts the characters in its patches. The head is left behind after training.

Shapes: M image tokens, D hidden size, Y = 4·M corners, G characters of a patch, K kinds of characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from holotron.env.placement import Placement

SLOTS = 6  # characters of a patch that are predicted, in reading order
NOTHING, OTHER, UNREAD = 0, 95, 255  # between the first two: the characters of ASCII that can be seen
KINDS = 96
# Most of a screen is empty, and knowing that is worth little.
WEIGHT_OF_NOTHING = 0.1


@dataclass(frozen=True)
class Letters:
    """The characters of a picture with the pixels they stand at, and boxes in which more may be written."""

    code: NDArray[np.uint8]
    x: NDArray[np.int64]
    y: NDArray[np.int64]
    unread: tuple[tuple[float, float, float, float], ...]

    @classmethod
    def of(cls, writing: Mapping[str, Any]) -> Letters:
        words = writing["words"]
        return cls(
            np.array([_kind(character) for text, _, _ in words for character in text], np.uint8),
            np.array([middle for _, _, middles in words for middle in middles], np.int64),
            np.array([row for _, row, middles in words for _ in middles], np.int64),
            tuple((box[0], box[1], box[2], box[3]) for box in writing["unread"]),
        )

    def placed(self, placement: Placement, size: tuple[int, int]) -> Letters:
        """Where they are on a canvas, for a picture of that size."""
        across, down = (shown / side for shown, side in zip(placement.scaled(size), size, strict=True))
        left, top = placement.left, placement.top
        return Letters(
            self.code,
            np.floor((self.x + 0.5) * across + left).astype(np.int64),
            np.floor((self.y + 0.5) * down + top).astype(np.int64),
            tuple(
                (box[0] * across + left, box[1] * down + top, box[2] * across + left, box[3] * down + top)
                for box in self.unread
            ),
        )

    def labels(self, size: tuple[int, int], grid: tuple[int, int]) -> NDArray[np.uint8]:
        """The characters of each patch of a picture, [rows·columns, G]; UNREAD where they are not known."""
        (width, height), (rows, columns) = size, grid
        labels = np.zeros((rows * columns, SLOTS), np.uint8)
        seen = (self.x >= 0) & (self.x < width) & (self.y >= 0) & (self.y < height)
        code, x, y = self.code[seen], self.x[seen], self.y[seen]
        patch = y * rows // height * columns + x * columns // width
        order = np.lexsort((x, y, patch))
        code, patch = code[order], patch[order]
        slot = np.arange(len(patch)) - np.searchsorted(patch, patch)
        fits = slot < SLOTS
        labels[patch[fits], slot[fits]] = code[fits]
        table = labels.reshape(rows, columns, SLOTS)
        for left, top, right, bottom in self.unread:
            first, last = max(0, int(left * columns / width)), max(0, int(right * columns / width) + 1)
            table[max(0, int(top * rows / height)) : max(0, int(bottom * rows / height) + 1), first:last] = UNREAD
        return labels


def _kind(character: str) -> int:
    return ord(character) - 32 if "!" <= character <= "~" else OTHER


class OcrHead(nn.Module):
    """Predicts the characters of an image token's four patches."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.out = nn.Linear(hidden_size, 4 * SLOTS * KINDS)

    def forward(self, images_MD: Tensor) -> Tensor:
        """Logits [M·4·G, K], in the order of Y and G."""
        normed = F.layer_norm(images_MD, images_MD.shape[-1:])
        logits: Tensor = self.out(normed).view(-1, KINDS)
        return logits


def ocr_loss(head: OcrHead, images_MD: Tensor, labels_YG: Tensor) -> Tensor:
    """The mean loss of what is known to be written; 0 where nothing is known."""
    targets = labels_YG.flatten().long()
    known = targets != UNREAD
    losses = F.cross_entropy(head(images_MD).float(), torch.where(known, targets, NOTHING), reduction="none")
    weights = torch.where(targets == NOTHING, WEIGHT_OF_NOTHING, 1.0) * known
    return (losses * weights).sum() / weights.sum().clamp_min(1.0)
