"""Many sequences side by side in arrays of fixed size, with the tables that keep them apart.

What is left of a batch is filled with padding that is not learned from and that no sequence sees.

Shapes: T tokens, S sequences, P patches, M = P/4 image tokens, Y = 4·M corners of them, R sequences that share an
image, N learned tokens, G characters of a patch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holotron.model.batch import Batch
from holotron.model.config import ModelConfig
from holotron.model.errors import ModelError
from holotron.model.grids import Grid, most_patches
from holotron.model.mrope import positions_of_sequence
from holotron.model.packed_images import PackedImages, count_windows, shuffle_order
from holotron.ops import FixedPacking, ScanTables
from holotron.ops.fixed_packing import offsets
from holotron.train.ocr_loss import SLOTS, UNREAD
from holotron.train.sequences import Picture, Sequence

T = TypeVar("T")
# Sequences that go into the same batch, since they are over the same picture.
Bunch = tuple[Sequence, ...]
# Of a picture, by its object: the last time that it is looked at, and for how many places so far.
Latest = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class BatchBudget:
    """How much a batch holds. Sequences that are longer than `longest`, or do not fit in at all, are left out.

    shared: how many times a picture may stand in a batch and be looked at once.
    """

    tokens: int = 32768
    patches: int = 98304
    learned: int = 8192
    sequences: int = 384
    images: int = 256
    longest: int = 8192
    shared: int = 1

    def __post_init__(self) -> None:
        for name in ("tokens", "learned", "sequences", "longest", "shared"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; a batch needs at least 1")
        if self.learned > self.tokens:
            raise ValueError(
                f"learned is {self.learned} and tokens is {self.tokens}: a batch cannot learn more tokens than it "
                "holds; lower learned or raise tokens"
            )
        if self.patches < 0 or self.patches % 4:
            raise ValueError(f"patches is {self.patches}; it must be a multiple of 4, the patches of an image token")
        if self.images < 0:
            raise ValueError(f"images is {self.images}; it must be 0 or more")

    def chunks(self, length: int) -> int:
        """A chunk per `length` tokens, and half of one more for each sequence's end."""
        return self.tokens // length + self.sequences // 2

    def windows(self, side: int | None) -> int:
        """Four times as many windows of `side` patches as whole ones have room: many at the edges are smaller."""
        return 4 * self.patches // side**2 + self.images if side else 0


class Tensors:
    """A dataclass of tensors, at any depth."""

    def to(self, device: torch.device) -> Self:
        return mapped(self, lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Self:
        """In memory that a GPU can fetch from while it computes."""
        return mapped(self, Tensor.pin_memory)


@dataclass(frozen=True)
class TrainingBatch(Tensors):
    """`pixels` are the images, one tensor per size, in the order in which their patches are laid out."""

    token_ids_T: Tensor
    text: Batch  # how the tokens lie, for the decoder
    image_row_T: Tensor  # row among the M image tokens, where it is one
    is_image_T: Tensor
    image_token_MR: Tensor  # and the way back
    is_image_token_MR: Tensor
    images: PackedImages | None  # how the patches lie, for the vision tower
    ocr_labels_YG: Tensor  # what is written at each corner
    rows_N: Tensor  # the token after which a learned one comes
    targets_N: Tensor
    weights_N: Tensor
    pixels: tuple[Tensor, ...]
    grids: tuple[Grid, ...]  # of each tensor of pixels
    pictures: tuple[tuple[str, int], ...]  # the name of each, and how many of the M image tokens it has, in their order
    used_tokens: int
    used_patches: int
    examples: int

    def tables(self) -> list[Tensor]:
        """All tensors whose shape the budget fixes, in an order that is the same for all batches."""
        found: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            found.append(tensor)
            return tensor

        mapped(replace(self, pixels=()), note)
        return found


def mapped(value: T, function: Callable[[Tensor], Tensor]) -> T:
    """The value with each tensor in it replaced."""
    new: Any = value
    if isinstance(value, Tensor):
        new = function(value)
    elif isinstance(value, tuple):
        new = tuple(mapped(item, function) for item in value)
    elif is_dataclass(value) and not isinstance(value, type):
        new = type(value)(**{field.name: mapped(getattr(value, field.name), function) for field in fields(value)})
    found: T = new
    return found


class Packer:
    """Lays sequences side by side in batches of one budget."""

    def __init__(self, config: ModelConfig, budget: BatchBudget) -> None:
        self.budget = budget
        self._config = config
        self._vision = config.vision
        self._mamba = config.mamba
        self._chunk = config.mamba.chunk_size if config.mamba else 64

    def fits(self, *bunch: Sequence) -> bool:
        """Whether a batch can hold them at all."""
        return self.room().takes(bunch)

    def room(self) -> Room:
        """An empty batch's."""
        return Room(self.budget, self._chunk, self._vision.window if self._vision else None)

    def build(self, sequences: list[Sequence]) -> TrainingBatch:
        budget, vision = self.budget, self._vision
        total = budget.tokens
        lengths = np.array([len(sequence.token_ids) for sequence in sequences])
        used = int(lengths.sum())
        token_ids = np.zeros(total, np.int64)
        token_ids[:used] = np.concatenate([sequence.token_ids for sequence in sequences])

        learned = np.flatnonzero(np.concatenate([sequence.learn for sequence in sequences]))
        rows_N = np.arange(budget.learned, dtype=np.int64)
        targets_N = np.zeros(budget.learned, np.int64)
        weights_N = np.zeros(budget.learned, np.float32)
        rows_N[: len(learned)], targets_N[: len(learned)] = learned - 1, token_ids[learned]
        weights_N[: len(learned)] = 1.0

        is_image = np.zeros(total, np.bool_)
        if vision is not None:
            is_image[:used] = token_ids[:used] == vision.image_token_id
        pictures, looks = _looks([picture for sequence in sequences for picture in sequence.pictures], budget.shared)
        groups = _by_size(pictures)
        order = [index for members in groups for index in members]
        grids = [grid for index in order for grid in pictures[index].grids]
        ends = np.cumsum([pictures[index].patches for index in order], dtype=np.int64)
        first_patch = dict(zip(order, [0, *ends.tolist()], strict=False))
        image_row_T = np.zeros(total, np.int64)
        image_token_MR = np.zeros((budget.patches // 4, budget.shared), np.int64)
        is_image_token_MR = np.zeros_like(image_token_MR, dtype=np.bool_)
        begin, tokens = 0, np.flatnonzero(is_image)
        for index, copy in looks:
            rows = first_patch[index] // 4 + np.arange(pictures[index].patches // 4)
            here = tokens[begin : begin + len(rows)]
            image_row_T[here] = rows
            image_token_MR[rows, copy], is_image_token_MR[rows, copy] = here, True
            begin += len(rows)
        # Nothing is looked up for images and padding; many times the same row would be slow to sum gradients for.
        any_id = np.arange(total) % min(256, self._config.vocab_size)
        token_ids = np.where(is_image | (np.arange(total) >= used), any_id, token_ids)
        _check_ids(token_ids, self._config)
        return TrainingBatch(
            token_ids_T=torch.from_numpy(token_ids),
            text=self._text(lengths, sequences),
            image_row_T=torch.from_numpy(image_row_T),
            is_image_T=torch.from_numpy(is_image),
            image_token_MR=torch.from_numpy(image_token_MR),
            is_image_token_MR=torch.from_numpy(is_image_token_MR),
            images=self._images(grids),
            ocr_labels_YG=torch.from_numpy(self._ocr_labels([pictures[index] for index in order])),
            rows_N=torch.from_numpy(rows_N),
            targets_N=torch.from_numpy(targets_N),
            weights_N=torch.from_numpy(weights_N),
            pixels=tuple(
                torch.from_numpy(np.concatenate([pictures[index].pixels() for index in members])) for members in groups
            ),
            grids=tuple(pictures[members[0]].grids[0] for members in groups),
            pictures=tuple((pictures[index].name, pictures[index].patches // 4) for index in order),
            used_tokens=used,
            used_patches=sum(rows * columns for rows, columns in grids),
            examples=len(sequences),
        )

    def _text(self, lengths: NDArray[np.int64], sequences: list[Sequence]) -> Batch:
        budget, mamba = self.budget, self._mamba
        scan = (
            None
            if mamba is None
            else ScanTables.build(
                lengths,
                tokens=budget.tokens,
                sequences=budget.sequences,
                chunk=self._chunk,
                chunks=budget.chunks(self._chunk),
                taps=mamba.conv_kernel - 1,
            )
        )
        packing = FixedPacking.build(
            lengths, tokens=budget.tokens, sequences=budget.sequences, longest=budget.longest, scan=scan
        )
        return Batch(packing, torch.from_numpy(self._positions(lengths, sequences)))

    def _positions(self, lengths: NDArray[np.int64], sequences: list[Sequence]) -> NDArray[np.int64]:
        """[T], or [3, T] where images have positions of their own."""
        if not self._config.uses_mrope or self._vision is None:
            return offsets(lengths, self.budget.tokens)
        image_token = self._vision.image_token_id
        parts = [
            positions_of_sequence(each.token_ids, image_token, (grid for p in each.pictures for grid in p.grids))
            for each in sequences
        ]
        positions_3T = np.concatenate(parts, axis=1)
        return np.pad(positions_3T, ((0, 0), (0, self.budget.tokens - positions_3T.shape[1])))

    def _images(self, grids: list[Grid]) -> PackedImages | None:
        if self._vision is None:
            return None
        return PackedImages.build(
            grids,
            patches=self.budget.patches,
            images=self.budget.images,
            prefix=self._vision.prefix_tokens,
            longest=min(most_patches(self._vision), max(self.budget.patches, 1)),
            window=self._vision.window,
            windows=self.budget.windows(self._vision.window),
            alike=self._vision.mode == "tiles",
        )

    def _ocr_labels(self, pictures: list[Picture]) -> NDArray[np.uint8]:
        """Of pictures whose patches follow each other; UNREAD where nothing is known."""
        labels_YG = np.full((self.budget.patches, SLOTS), UNREAD, np.uint8)
        patch = 0
        for picture in pictures:
            if (labels := picture.ocr_labels) is not None:
                labels_YG[patch : patch + picture.patches] = labels[shuffle_order(picture.grids[0])]
            patch += picture.patches
        return labels_YG


class Room:
    """What is left of a budget."""

    def __init__(self, budget: BatchBudget, chunk: int, window: int | None = None) -> None:
        self._chunk, self._longest, self._window, self._shared = chunk, budget.longest, window, budget.shared
        self._latest: Latest = {}
        self._taken = list[Bunch]()  # so that no other picture is where one of theirs was
        counts = budget.tokens, budget.patches, budget.learned, budget.sequences, budget.images
        self._left = np.array([*counts, budget.chunks(chunk), budget.windows(window)])

    def takes(self, bunch: Bunch) -> bool:
        short = all(len(sequence.token_ids) <= self._longest for sequence in bunch)
        return short and bool((self._left >= self.needs(bunch)).all())

    def take(self, bunch: Bunch) -> None:
        self._left -= self._needs(bunch, self._latest)
        self._taken.append(bunch)

    def needs(self, bunch: Bunch) -> NDArray[np.int64]:
        """Tokens, patches, learned tokens, sequences, images, chunks and windows, besides what was taken."""
        return self._needs(bunch, dict(self._latest))

    def _needs(self, bunch: Bunch, latest: Latest) -> NDArray[np.int64]:
        tokens = np.array([len(sequence.token_ids) for sequence in bunch])
        learned = sum(int(sequence.learn.sum()) for sequence in bunch)
        pictures, _ = _looks([picture for sequence in bunch for picture in sequence.pictures], self._shared, latest)
        patches = sum(picture.patches for picture in pictures)
        images = sum(len(picture.grids) for picture in pictures)
        chunks = int((-(-tokens // self._chunk)).sum())
        windows = sum(count_windows(grid, self._window) for picture in pictures for grid in picture.grids)
        return np.array([tokens.sum(), patches, learned, len(bunch), images, chunks, windows])


def _check_ids(token_ids: NDArray[np.int64], config: ModelConfig) -> None:
    """Refuse what a GPU would only report as a failed assertion, at some later step and for good."""
    for strange in (token_ids.min(), token_ids.max()):
        if not 0 <= strange < config.vocab_size:
            raise ModelError(
                f"the token id {strange} is not among the {config.vocab_size} that {config.name} has: its tokenizer is "
                "another model's; put the tokenizer that belongs to the checkpoint into its folder"
            )


def _by_size(pictures: list[Picture]) -> list[list[int]]:
    """Indices of pictures whose pixels have one size together, also of those that do not follow each other."""
    groups: dict[tuple[int, int], list[int]] = {}
    for index, picture in enumerate(pictures):
        groups.setdefault(picture.pixel_size, []).append(index)
    return list(groups.values())


def _looks(
    pictures: list[Picture], shared: int, latest: Latest | None = None
) -> tuple[list[Picture], list[tuple[int, int]]]:
    """The pictures to look at, and for each place where one stands which of them it is and the how manieth use.

    The same picture is one object; used more often than can be shared, it is looked at again. latest: of those that a
    batch has already, changed by what is new.
    """
    needed: list[Picture] = []
    looks: list[tuple[int, int]] = []
    latest = {} if latest is None else latest
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
