"""Played episodes packed side by side, with what is known of each drawn token.

Shapes: N learned tokens of a batch's budget, W words of 32 tokens each.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as ListOf
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holotron.train.batches import Packer, Tensors, TrainingBatch
from holotron.train.rl.config import ObjectiveConfig
from holotron.train.rl.played import PlayedSequence
from holotron.train.rl.policy_loss import DrawnTokens
from holotron.train.sequences import Sequence

NO_VERSION = -1
THREADS = 8


@dataclass(frozen=True)
class WeighedSequence:
    """A played episode, or a step of one, and the advantage of each of its steps. replayed: it is an earlier success.

    version: of the weights when it was begun, with which its session may still remember what came first.
    share: of its episode. length: drawn tokens of its whole episode; 0 are those that it has.
    """

    played: PlayedSequence
    advantages: tuple[float, ...]
    replayed: bool = False
    version: int = 0
    share: float = 1.0
    length: int = 0


def weigh(
    episode: ListOf[PlayedSequence], advantages: ListOf[float], replayed: bool, version: int
) -> Iterator[WeighedSequence]:
    """The sequences of an episode, each with the advantages of its own steps."""
    length, first = sum(len(each.engine) for each in episode), 0
    for each in episode:
        own = tuple(advantages[first : first + len(each.states)])
        yield WeighedSequence(each, own, replayed, version, 1 / len(episode), length)
        first += len(own)


def nothing(vocab_size: int) -> WeighedSequence:
    """For a rank that has nothing left to learn from while others have: one token, and none that was drawn."""
    none, words = np.zeros(0, np.int64), -(-vocab_size // 32)
    sequence = Sequence(np.zeros(1, np.int64), np.zeros(1, np.bool_), (), "nothing")
    played = PlayedSequence(sequence, np.zeros(0, np.float32), none, none, np.zeros((0, words), np.int32), ("",))
    return WeighedSequence(played, (0.0,))


@dataclass(frozen=True)
class RolloutBatch(Tensors):
    """allowed: what each token was drawn from, 32 tokens a word. version: the oldest of the weights
    that had to do with it: those that drew it and those that its episode was begun with.

    Padding and tokens of replayed successes have NO_VERSION. measured: `drawn.old_N` is known; else the first pass
    over the batch says it.
    """

    batch: TrainingBatch
    drawn: DrawnTokens
    allowed_NW: Tensor
    version_N: Tensor
    measured: bool = False


def pack(packer: Packer, sequences: ListOf[WeighedSequence], config: ObjectiveConfig) -> list[RolloutBatch]:
    """Batches in the order of the sequences, whose weights sum to what one update minimises."""
    return list(packing(packer, sequences, config, sum(sequence.share for sequence in sequences)))


def packing(
    packer: Packer, sequences: ListOf[WeighedSequence], config: ObjectiveConfig, episodes: float
) -> Iterator[RolloutBatch]:
    """The same one after another. episodes: that the update learns from, these among them."""
    # Most of it is decoding screenshots and scaling them, which threads do at once, and while others are learned from.
    with ThreadPoolExecutor(THREADS) as threads:
        bunches = bunched(packer, sequences)
        yield from threads.map(lambda members: build_batch(packer, members, episodes, config), bunches)


def bunched(packer: Packer, sequences: ListOf[WeighedSequence]) -> list[list[WeighedSequence]]:
    """What goes into each batch."""
    room, bunches = packer.room(), list[list[WeighedSequence]]()
    for sequence in sequences:
        bunch = (sequence.played.sequence,)
        if not bunches or not room.takes(bunch):
            room = packer.room()
            bunches.append([])
        room.take(bunch)
        bunches[-1].append(sequence)
    return bunches


def build_batch(
    packer: Packer, members: list[WeighedSequence], episodes: float, config: ObjectiveConfig
) -> RolloutBatch:
    """episodes: that one update learns from, over all its batches."""
    most, played = packer.budget.learned, [member.played for member in members]
    # Every turn is an answer of its own, numbered through the batch.
    starts = np.cumsum([0, *(len(each.states) for each in played)])
    lengths = [
        (member.length or len(member.played.engine)) if config.by_length else config.tokens for member in members
    ]
    weights = [np.full(len(each.engine), 1 / (episodes * length)) for each, length in zip(played, lengths, strict=True)]
    advantages = [np.array(member.advantages)[member.played.step] for member in members]
    engine_N = _padded(np.concatenate([each.engine for each in played]), most)
    allowed = np.concatenate([each.allowed for each in played])
    allowed_NW = np.full((most, allowed.shape[1]), -1, np.int32)  # padding may be anything
    allowed_NW[: len(allowed)] = allowed
    return RolloutBatch(
        packer.build([each.sequence for each in played]),
        DrawnTokens(
            advantage_N=_padded(np.concatenate(advantages), most),
            engine_N=engine_N,
            old_N=engine_N.clone(),
            reference_N=engine_N.clone() if config.kl else None,
            weight_N=_padded(np.concatenate(weights), most),
            answer_N=_padded(
                np.concatenate([each.step + start for each, start in zip(played, starts, strict=False)]), most, np.int64
            ),
        ),
        torch.from_numpy(allowed_NW),
        _padded(np.concatenate([_versions(member) for member in members]), most, np.int64, NO_VERSION),
    )


def _versions(member: WeighedSequence) -> NDArray[np.int64]:
    version = np.minimum(member.played.version, member.version)
    return np.full_like(version, NO_VERSION) if member.replayed else version


def _padded(values: NDArray[Any], most: int, kind: type[np.generic] = np.float32, fill: int = 0) -> Tensor:
    out: NDArray[Any] = np.full(most, fill, kind)
    out[: len(values)] = values
    return torch.from_numpy(out)
