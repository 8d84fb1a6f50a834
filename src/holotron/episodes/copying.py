"""Bringing episodes from elsewhere into a store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from holotron.episodes.errors import AlreadyFinished, EpisodeError
from holotron.episodes.record import EpisodeInfo, Step
from holotron.episodes.store import EpisodeStore
from holotron.episodes.writer import EpisodeWriter


def begin_copy(store: EpisodeStore, info: EpisodeInfo) -> EpisodeWriter | None:
    """A writer for an episode with that id and beginning; None if the store has it already, finished."""
    with suppress(EpisodeError):  # not there, or damaged
        if store.info(info.id).finished:
            return None
    try:
        return store.begin(info.task, info.policy, info.environment, episode_id=info.id, started=info.started)
    except AlreadyFinished:
        return None


def end_copy(writer: EpisodeWriter, info: EpisodeInfo) -> None:
    """End the copy as the episode ended, or leave it unfinished if it was."""
    if info.outcome is not None:
        writer.finish(info.outcome, info.ended)
    writer.close()


def copy_in(store: EpisodeStore, info: EpisodeInfo, steps: Iterable[tuple[Step, bytes | None]]) -> bool:
    """Write a whole episode; False if the store has it already."""
    writer = begin_copy(store, info)
    if writer is None:
        return False
    with writer:
        for step, image in steps:
            writer.add_step(step, image)
        end_copy(writer, info)
    return True
