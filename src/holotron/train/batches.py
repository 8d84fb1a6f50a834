"""Many sequences side by side in arrays of fixed size, with the tables that keep them apart.

Everything that differs from batch to batch is a number in a table, nothing a shape: the same compiled program runs
them all. What is left of a batch is filled with padding that nobody learns from and nobody else sees.

Shapes: T tokens, S sequences, C chunks of L tokens, J conv taps before the present one, P patches, I images,
X = P + prefix tokens of all images, M = P/4 image tokens, Y = 4·M corners of them, K prefix tokens of one image,
R sequences that share an image, N learned tokens, G characters of a patch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holotron.model.config import ModelConfig
from holotron.train.ocr_loss import SLOTS, UNREAD
from holotron.train.sequences import Picture, Sequence

# Sequences that go into the same batch, since they are over the same picture.
Bunch = tuple[Sequence, ...]


@dataclass(frozen=True)
class Budget:
    """How much a batch holds. Sequences that are longer than `longest`, or do not fit in at all, are left out.

    shared: how many sequences over the same picture are put together, to look at it once.
    """

    tokens: int = 32768
    patches: int = 98304
    learned: int = 8192
    sequences: int = 384
    images: int = 256
    longest: int = 8192
    shared: int = 1

    def chunks(self, length: int) -> int:
        """A chunk per `length` tokens, and half of one more for each sequence's end."""
        return self.tokens // length + self.sequences // 2


@dataclass(frozen=True)
class Batch:
    """Tensors only. `pixels` are the images, one tensor per size, in the order in which their patches are laid out."""

    token_ids_T: Tensor
    image_row_T: Tensor  # row among the M image tokens, where it is one
    is_image_T: Tensor
    image_token_MR: Tensor  # and the way back
    is_image_token_MR: Tensor
    same_TJ: Tensor  # whether the token j+1 places before is of the same sequence
    bounds_S: Tensor  # first token of each sequence, and the end
    tokens_CL: Tensor
    valid_CL: Tensor
    place_T: Tensor
    is_used_T: Tensor
    first_S: Tensor  # first chunk of each sequence
    counts_S: Tensor  # chunks of each sequence
    prefix_XK: Tensor  # 1 where a position of the tower is the k-th prefix token
    patch_X: Tensor  # the patch at each position of the tower, where there is one
    is_patch_X: Tensor
    position_P: Tensor  # and the way back
    is_seen_P: Tensor
    square_X: Tensor  # the place of each position among the 4·M corners of image tokens
    corner_Y: Tensor  # and the way back: the position of each corner
    is_corner_Y: Tensor
    glyphs_YG: Tensor  # what is written at each corner
    tower_bounds_I: Tensor
    rows_N: Tensor  # the token after which a learned one comes
    targets_N: Tensor
    weights_N: Tensor
    pixels: tuple[Tensor, ...]
    grids: tuple[tuple[int, int], ...]  # of each tensor of pixels
    # Bounds that hold for every batch: a number that changed from one to the next would be another program.
    longest: int
    longest_image: int
    used_tokens: int
    used_patches: int
    samples: int

    def to(self, device: torch.device) -> Batch:
        moved = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                value = value.to(device, non_blocking=True)
            elif field.name == "pixels":
                value = tuple(image.to(device, non_blocking=True) for image in value)
            moved[field.name] = value
        return Batch(**moved)

    def pin(self) -> Batch:
        """In memory that a GPU can fetch from while it computes."""
        moved: dict[str, Any] = {
            field.name: value.pin_memory() if isinstance(value := getattr(self, field.name), Tensor) else value
            for field in fields(self)
        }
        moved["pixels"] = tuple(image.pin_memory() for image in self.pixels)
        return Batch(**moved)


class Packer:
    """Lays sequences side by side in batches of one budget."""

    def __init__(self, config: ModelConfig, budget: Budget) -> None:
        assert config.vision is not None
        self.budget = budget
        self._vision = config.vision
        self._chunk = config.mamba.chunk_size if config.mamba else 64
        self._taps = config.mamba.conv_kernel - 1 if config.mamba else 0

    def fits(self, *bunch: Sequence) -> bool:
        """Whether a batch can hold them at all."""
        return self.room().takes(bunch)

    def room(self) -> Room:
        """An empty batch's."""
        return Room(self.budget, self._chunk)

    def build(self, sequences: list[Sequence]) -> Batch:
        budget, chunk, vision = self.budget, self._chunk, self._vision
        total = budget.tokens
        lengths = np.array([len(sequence.token_ids) for sequence in sequences])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        used = int(starts[-1])
        filler = 512
        bounds = [*starts.tolist(), *range(used + filler, total, filler), total]
        bounds += [total] * (budget.sequences + total // filler + 2 - len(bounds))

        token_ids = np.zeros(total, np.int64)
        token_ids[:used] = np.concatenate([sequence.token_ids for sequence in sequences])
        learn = np.concatenate([sequence.learn for sequence in sequences])
        offset_T = np.arange(total)
        offset_T[:used] -= np.repeat(starts[:-1], lengths)
        offset_T[used:] = 0
        same_TJ = offset_T[:, None] > np.arange(self._taps)[None, :]

        counts = -(-lengths // chunk)
        first = np.concatenate([[0], np.cumsum(counts)])
        chunks = budget.chunks(chunk)
        place_T = np.zeros(total, np.int64)
        place_T[:used] = np.repeat(first[:-1], lengths) * chunk + offset_T[:used]
        tokens_CL = np.zeros(chunks * chunk, np.int64)
        valid_CL = np.zeros(chunks * chunk, np.bool_)
        tokens_CL[place_T[:used]] = np.arange(used)
        valid_CL[place_T[:used]] = True

        learned = np.flatnonzero(learn)
        rows_N = np.arange(budget.learned, dtype=np.int64)
        targets_N = np.zeros(budget.learned, np.int64)
        weights_N = np.zeros(budget.learned, np.float32)
        rows_N[: len(learned)], targets_N[: len(learned)] = learned - 1, token_ids[learned]
        weights_N[: len(learned)] = 1.0

        is_image = token_ids == vision.image_token_id
        pictures, looks = _looks([picture for sequence in sequences for picture in sequence.pictures], budget.shared)
        tower = self._tower(pictures)
        image_row_T = np.zeros(total, np.int64)
        image_token_MR = np.zeros((budget.patches // 4, budget.shared), np.int64)
        is_image_token_MR = np.zeros_like(image_token_MR, dtype=np.bool_)
        begin, tokens = 0, np.flatnonzero(is_image)
        for picture, copy in looks:
            rows = tower.rows[picture]
            here = tokens[begin : begin + len(rows)]
            image_row_T[here] = rows
            image_token_MR[rows, copy], is_image_token_MR[rows, copy] = here, True
            begin += len(rows)
        # Nothing is looked up for images and padding; many times the same row would be slow to sum gradients for.
        spread = np.arange(total) % 256
        return Batch(
            token_ids_T=torch.from_numpy(np.where(is_image | (np.arange(total) >= used), spread, token_ids)),
            image_row_T=torch.from_numpy(image_row_T),
            is_image_T=torch.from_numpy(is_image),
            image_token_MR=torch.from_numpy(image_token_MR),
            is_image_token_MR=torch.from_numpy(is_image_token_MR),
            same_TJ=torch.from_numpy(same_TJ),
            bounds_S=torch.tensor(bounds, dtype=torch.int32),
            tokens_CL=torch.from_numpy(tokens_CL.reshape(chunks, chunk)),
            valid_CL=torch.from_numpy(valid_CL.reshape(chunks, chunk)),
            place_T=torch.from_numpy(place_T),
            is_used_T=torch.from_numpy(np.arange(total) < used),
            first_S=_padded(first[:-1], budget.sequences),
            counts_S=_padded(counts, budget.sequences),
            prefix_XK=torch.from_numpy(tower.prefix),
            patch_X=torch.from_numpy(tower.patch),
            is_patch_X=torch.from_numpy(tower.is_patch),
            position_P=torch.from_numpy(tower.position),
            is_seen_P=torch.from_numpy(np.arange(budget.patches) < tower.patches),
            square_X=torch.from_numpy(tower.square),
            corner_Y=torch.from_numpy(tower.corner),
            is_corner_Y=torch.from_numpy(np.arange(budget.patches) < tower.patches),
            glyphs_YG=torch.from_numpy(tower.glyphs),
            tower_bounds_I=torch.tensor(tower.bounds, dtype=torch.int32),
            rows_N=torch.from_numpy(rows_N),
            targets_N=torch.from_numpy(targets_N),
            weights_N=torch.from_numpy(weights_N),
            pixels=tower.pixels,
            grids=tower.grids,
            longest=max(filler, budget.longest),
            longest_image=max(filler, vision.prefix_tokens + vision.max_patches),
            used_tokens=used,
            used_patches=tower.patches,
            samples=len(sequences),
        )

    def _tower(self, pictures: list[Picture]) -> _Tower:
        """Images of one size side by side, whatever their order in the sequences."""
        budget, prefix = self.budget, self._vision.prefix_tokens
        groups: dict[tuple[int, int], list[int]] = {}
        for index, picture in enumerate(pictures):
            groups.setdefault(picture.size, []).append(index)
        total = budget.patches + prefix * budget.images
        prefix_XK = np.zeros((total, prefix), np.float32)
        patch_X, is_patch_X = np.zeros(total, np.int64), np.zeros(total, np.bool_)
        position_P, square_X = np.zeros(budget.patches, np.int64), np.zeros(total, np.int64)
        corner_Y = np.zeros(budget.patches, np.int64)
        glyphs_YG = np.full((budget.patches, SLOTS), UNREAD, np.uint8)
        bounds, position, patch = [0], 0, 0
        rows_of: dict[int, NDArray[np.int64]] = {}
        for members in groups.values():
            grid_rows, grid_columns = pictures[members[0]].grid
            count = grid_rows * grid_columns
            squares = np.arange(count).reshape(grid_rows // 2, 2, grid_columns // 2, 2).transpose(0, 2, 1, 3).ravel()
            for index in members:
                prefix_XK[position : position + prefix] = np.eye(prefix, dtype=np.float32)
                position += prefix
                here = slice(position, position + count)
                patch_X[here], is_patch_X[here] = patch + np.arange(count), True
                position_P[patch : patch + count] = position + np.arange(count)
                corner_Y[patch : patch + count] = position + squares
                if (glyphs := pictures[index].glyphs) is not None:
                    glyphs_YG[patch : patch + count] = glyphs[squares]
                square_X[position + squares] = patch + np.arange(count)
                rows_of[index] = patch // 4 + np.arange(count // 4)
                position, patch = position + count, patch + count
                bounds.append(position)
        filler = 512
        all_bounds = [*bounds, *range(position + filler, total, filler), total]
        all_bounds += [total] * (budget.images + total // filler + 2 - len(all_bounds))
        return _Tower(
            prefix=prefix_XK,
            patch=patch_X,
            is_patch=is_patch_X,
            position=position_P,
            square=square_X,
            corner=corner_Y,
            glyphs=glyphs_YG,
            bounds=all_bounds,
            rows=[rows_of[index] for index in range(len(pictures))],
            pixels=tuple(
                torch.from_numpy(np.stack([pictures[index].pixels() for index in members]))
                for members in groups.values()
            ),
            grids=tuple(pictures[members[0]].grid for members in groups.values()),
            patches=patch,
        )


@dataclass(frozen=True)
class _Tower:
    prefix: NDArray[np.float32]
    patch: NDArray[np.int64]
    is_patch: NDArray[np.bool_]
    position: NDArray[np.int64]
    square: NDArray[np.int64]
    corner: NDArray[np.int64]
    glyphs: NDArray[np.uint8]
    bounds: list[int]
    rows: list[NDArray[np.int64]]  # of each picture
    pixels: tuple[Tensor, ...]
    grids: tuple[tuple[int, int], ...]
    patches: int


class Room:
    """What is left of a budget."""

    def __init__(self, budget: Budget, chunk: int) -> None:
        self._chunk, self._longest = chunk, budget.longest
        self._left = np.array(
            [budget.tokens, budget.patches, budget.learned, budget.sequences, budget.images, budget.chunks(chunk)]
        )

    def takes(self, bunch: Bunch) -> bool:
        short = all(len(sequence.token_ids) <= self._longest for sequence in bunch)
        return short and bool((self._left >= self.needs(bunch)).all())

    def take(self, bunch: Bunch) -> None:
        self._left -= self.needs(bunch)

    def needs(self, bunch: Bunch) -> NDArray[np.int64]:
        """Tokens, patches, learned tokens, sequences, images and chunks."""
        tokens = np.array([len(sequence.token_ids) for sequence in bunch])
        learned = sum(int(sequence.learn.sum()) for sequence in bunch)
        pictures, _ = _looks([picture for sequence in bunch for picture in sequence.pictures], len(bunch))
        patches = sum(picture.grid[0] * picture.grid[1] for picture in pictures)
        chunks = int((-(-tokens // self._chunk)).sum())
        return np.array([tokens.sum(), patches, learned, len(bunch), len(pictures), chunks])


def _looks(pictures: list[Picture], shared: int) -> tuple[list[Picture], list[tuple[int, int]]]:
    """The pictures to look at, and for each place where one stands which of them it is and the how manieth use.

    The same picture is one object; used more often than can be shared, it is looked at again.
    """
    needed: list[Picture] = []
    looks: list[tuple[int, int]] = []
    latest: dict[int, tuple[int, int]] = {}
    for picture in pictures:
        place, copy = latest.get(id(picture), (0, shared - 1))
        if copy + 1 < shared:
            copy += 1
        else:
            place, copy = len(needed), 0
            needed.append(picture)
        latest[id(picture)] = place, copy
        looks.append((place, copy))
    return needed, looks


def _padded(values: NDArray[np.int64], length: int) -> Tensor:
    whole = np.zeros(length, np.int32)
    whole[: len(values)] = values
    return torch.from_numpy(whole)
