"""Which live session a stateless request continues: the one that has computed the longest beginning of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from holotron.engine.session_state import SessionState

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
