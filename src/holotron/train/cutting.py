"""Episodes that are longer than a batch takes, cut by steps.

A piece begins at a step, with what its format keeps of the steps before it where a conversation is sent whole: their
texts, without their screenshots. It goes on as a session would, for as many steps as fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from holotron.agent.chat import Message
from holotron.agent.formats.base import PolicyFormat
from holotron.episodes.examples import Example
from holotron.train.sequences import Sequence, SequenceWriter


def cut(
    example: Example, policy_format: PolicyFormat, writer: SequenceWriter, fits: Callable[[Sequence], bool]
) -> list[Sequence]:
    """The pieces in which something is learned, each with as many steps as fit; steps that fit nowhere are left out."""
    pieces: list[Sequence] = []
    start, count = 0, len(example.turns)
    while start < count:
        first, last = start, count  # the first steps of a piece fit up to one of these ends, and not beyond the other
        best: Sequence | None = None
        while first < last:
            end = (first + last + 1) // 2
            written = writer.write(_piece(example, policy_format, start, end))
            if fits(written):
                first, best = end, written
            else:
                last = end - 1
        if best is not None and best.learn.any():
            pieces.append(best)
        start = max(first, start + 1)
    return pieces


def _piece(example: Example, policy_format: PolicyFormat, start: int, end: int) -> Example:
    """The steps from start to end, after those before as they are kept."""
    turns = example.turns[start:end]
    if start:
        before = [
            message for turn in example.turns[:start] for message in (*turn.messages, Message("assistant", turn.answer))
        ]
        kept = replace(policy_format, keep_images=1).history([*before, *turns[0].messages])
        turns = (replace(turns[0], sent=tuple(kept)), *turns[1:])
    return replace(example, turns=turns)
