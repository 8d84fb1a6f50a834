"""Sessions that stateless requests leave behind: which one a request continues, and which are closed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from holotron.engine.session_state import Residency, SessionState

if TYPE_CHECKING:
    from holotron.engine.engine_loop import EngineLoop

ImageKeys = Sequence[tuple[int, bytes]]


def longest_match(
    token_ids: Sequence[int], image_keys: ImageKeys, contexts: Iterable[SessionState]
) -> tuple[SessionState, int] | None:
    """The context and how many tokens of the request its memory (or one of its checkpoints) stands at.

    The request is read once, whatever the number of sessions: fingerprints are compared, not tokens. At least one
    token of the request is left to compute, since its logits are wanted.
    """
    places: dict[int, list[SessionState]] = {}
    for context in contexts:
        for position in context.resume_positions():
            if 0 < position < len(token_ids):
                places.setdefault(position, []).append(context)
    best: tuple[SessionState, int] | None = None
    tokens = memoryview(array("i", token_ids))
    state, done = blake2b(digest_size=16), 0
    for position in sorted(places):
        state.update(tokens[done:position])
        done = position
        fingerprint = state.copy()
        for start, key in image_keys:
            if start < position:
                fingerprint.update(key)
        wanted = fingerprint.digest()
        for context in places[position]:
            if context.digest(position) == wanted:
                best = (context, position)
                break
    return best


def close_unused(core: EngineLoop, before: float, most: int) -> None:
    """Close sessions of pools that were left before that time, all but the `most` left last, and those of no use.

    Of no use is a session whose memory is gone, or whose memory other weights have computed.
    """
    left = [(context.left_at, context) for context in core.contexts.values() if context.left_at is not None]
    left.sort(key=lambda pair: pair[0])
    for number, (left_at, context) in enumerate(left):
        is_late = left_at < before or number < len(left) - most
        is_useless = context.residency is Residency.NONE or context.epoch != core.epoch
        if context.task is None and not context.claimed and (is_late or is_useless):
            core.close(context)
