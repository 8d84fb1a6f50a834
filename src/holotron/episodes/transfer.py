"""Episodes out of a store and into one, in any of the formats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from holotron.episodes.errors import AlreadyFinished, EpisodeError
from holotron.episodes.files import whole_file
from holotron.episodes.images import ImageFolder
from holotron.episodes.lines import read_lines, write_lines
from holotron.episodes.record import EpisodeInfo, StepWithImage
from holotron.episodes.store import EpisodeStore

Format = Literal["parquet", "responses", "browsergym", "uitars"]


def export(
    store: EpisodeStore,
    path: str | Path,
    format: Format,
    *,
    images: Literal["embed", "reference"] = "embed",
    episodes: Iterable[EpisodeInfo] | None = None,
) -> int:
    """Write episodes, all that are finished unless told which, into one file; returns how many.

    Parquet keeps everything; the others what their vocabulary can say, and an action it cannot is an error that names
    the episode. Images go into the file, or are named by their path in the store.
    """
    _check(format)
    chosen = store.list_episodes(finished=True) if episodes is None else list(episodes)
    with whole_file(Path(path)) as partial:
        if format == "parquet":
            from holotron.episodes.parquet import write_parquet

            write_parquet(store, partial, chosen, images == "embed")
        else:
            write_lines(store, partial, chosen, format, images == "embed")
    return len(chosen)


def import_(path: str | Path, store: EpisodeStore, format: Format, *, images: ImageFolder | None = None) -> list[str]:
    """Write a file's episodes into a store and return their ids; see `copy_in` for those that the store has already.

    `images` is where screenshots are that the file only names; without it, in the store itself. Damage is an error
    that names the line, and the episodes before it are there.
    """
    _check(format)
    found: Iterator[tuple[EpisodeInfo, Iterable[StepWithImage]]]
    if format == "parquet":
        from holotron.episodes.parquet import read_parquet

        found = read_parquet(Path(path), images)
    else:
        found = read_lines(Path(path), format, images or store.images)
    return [info.id for info, steps in found if copy_in(store, info, steps)]


def copy_in(store: EpisodeStore, info: EpisodeInfo, steps: Iterable[StepWithImage]) -> bool:
    """Write a whole episode, unfinished if it was; False if the store has it already, finished.

    One that says something about the policy takes the place of one that the infrastructure failed.
    """
    with suppress(EpisodeError):  # not there, or damaged
        known = store.info(info.id)
        if known.counts or (known.finished and not info.counts):
            return False
    return write_in(store, info, steps)


def write_in(store: EpisodeStore, info: EpisodeInfo, steps: Iterable[StepWithImage]) -> bool:
    """As copy_in, but in any case in place of one that the infrastructure failed."""
    try:
        writer = store.begin(info.task, info.policy, info.environment, episode_id=info.id, started=info.started)
    except AlreadyFinished:
        return False
    with writer:
        for step, image in steps:
            writer.add_step(step, image)
        if info.outcome is not None:
            writer.finish(info.outcome, info.ended)
    return True


def _check(format: str) -> None:
    if format not in get_args(Format):
        raise EpisodeError(f"there is no format {format!r}; choose one of {', '.join(get_args(Format))}")
