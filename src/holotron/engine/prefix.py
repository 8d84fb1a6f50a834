"""Sessions that stateless requests leave behind: which one a request continues, and which are closed."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holotron.engine.scheduler import at_image
from holotron.engine.session_state import Residency, SessionState

if TYPE_CHECKING:
    from holotron.engine.engine_loop import EngineLoop

ImageKeys = Sequence[tuple[int, bytes]]


def match(
    loop: EngineLoop,
    token_ids: Sequence[int],
    image_keys: ImageKeys = (),
    pool: str | None = None,
    *,
    any_epoch: bool = False,
    adapter: str | None = None,
) -> tuple[SessionState, int] | None:
    """The idle session of the pool that has computed the longest beginning of these tokens, and how much of it.

    It has the same adapter. Its memory, or one of its checkpoints, stands there. What other weights have computed is
    passed over, unless with any_epoch. All of the tokens are found only where their logits were kept: else the last one
    is computed again.
    """
    places: dict[int, list[SessionState]] = {}
    number = loop.adapter_number(adapter)
    candidates = [
        session
        for session in loop.sessions.values()
        if (session.request is None and session.waits_for is None and not session.claimed)
        and (session.pool == pool and session.adapter == number)
        and (any_epoch or session.epoch == loop.epoch)
    ]
    for session in candidates:
        for position in session.resume_positions(loop.memory.has_state):
            if 0 < position < len(token_ids) or (
                position == len(token_ids) and session.logits_at(position) is not None
            ):
                places.setdefault(position, []).append(session)
    best: tuple[SessionState, int] | None = None
    # The request is read once for any number of sessions: fingerprints are compared, not tokens.
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
        for session in places[position]:
            if session.digest(position) == wanted:
                best = (session, position)
                break
    if not loop.memory.has_state:  # keys and values can be cut anywhere
        wanted_tokens, keys = np.frombuffer(tokens, np.int32), dict(image_keys)
        for session in candidates:
            position = 0 if session.slot is None else _alike(session, wanted_tokens, keys)
            # Less than a page, such as the token that begins every prompt, is not worth a fork.
            if position >= loop.config.page_size and position > (best[1] if best else 0):
                best = (session, position)
    return best


def _alike(session: SessionState, token_ids: NDArray[np.int32], image_keys: Mapping[int, bytes]) -> int:
    """How many tokens a session has computed that are the first of these, whole images only; one is left to compute."""
    count = min(session.computed, len(token_ids) - 1)
    differ = np.frombuffer(session.tokens, np.int32)[:count] != token_ids[:count]
    count = int(differ.argmax()) if differ.any() else count
    for span in session.images:
        if span.start < count and (span.end > count or image_keys.get(span.start) != span.key):
            count = span.start
    return count if count >= session.dropped_before else 0


def continue_or_open(
    loop: EngineLoop,
    token_ids: Sequence[int],
    image_keys: ImageKeys,
    pool: str | None,
    *,
    any_epoch: bool = False,
    adapter: str | None = None,
) -> tuple[SessionState, int]:
    """A session that goes on with the rest of these tokens, and how many of them it has already."""
    found = match(loop, token_ids, image_keys, pool, any_epoch=any_epoch, adapter=adapter)
    if found is None:
        return loop.open(pool=pool, adapter=adapter), 0
    session, position = found
    if _ends_alike(session, position, token_ids):
        position = len(session.tokens)
        del session.turns[_turns_before(session, position) :]
    else:
        session = branch(loop, session, position)
    session.claimed = True  # else a second request like this one could be given the same session
    return session, position


def _ends_alike(session: SessionState, position: int, token_ids: Sequence[int]) -> bool:
    """Whether all that the session has besides are the last tokens of its answer, and the request has them too."""
    if position != session.computed or session.held == position or at_image(session):
        return False
    return list(session.tokens[position:]) == list(token_ids[position : len(session.tokens)])


def branch(loop: EngineLoop, session: SessionState, position: int) -> SessionState:
    """A session that stands at `position` of this one: itself if it stands there, else a fork of that beginning."""
    if position == session.computed:
        session.logits = session.logits_at(position)
        loop.counters.appended_tokens -= session.uncomputed  # the request brings them again
        session.truncate(position)
        del session.turns[_turns_before(session, position) :]
        return session
    child = loop.new_child(session)
    child.waits_for = None
    child.truncate(position)
    del child.turns[_turns_before(session, position) :]
    loop.memory.fork_at(session, child, position, loop.idle_besides(session, child))
    return child


def _turns_before(session: SessionState, position: int) -> int:
    return sum(turn.end <= position for turn in session.turns)


def close_unused(loop: EngineLoop, before: float, most: int) -> None:
    """Close sessions of pools that were left before that time, all but the `most` left last, and those of no use.

    Of no use is a session whose memory is gone, or whose memory other weights have computed.
    """
    left = [(session.left_at, session) for session in loop.sessions.values() if session.left_at is not None]
    left.sort(key=lambda pair: pair[0])
    for number, (left_at, session) in enumerate(left):
        is_late = left_at < before or number < len(left) - most
        is_useless = session.residency is Residency.NONE or session.epoch != loop.epoch
        if session.request is None and not session.claimed and (is_late or is_useless):
            loop.close(session)
