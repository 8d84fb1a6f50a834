"""Episodes out of a store and into one, in any of the formats."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

from holotron.episodes.errors import EpisodeError
from holotron.episodes.images import ImageFolder
from holotron.episodes.lines import export_lines, import_lines
from holotron.episodes.record import EpisodeInfo
from holotron.episodes.store import EpisodeStore

Format = Literal["parquet", "openai", "browsergym", "uitars"]


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
    path = Path(path)
    chosen = store.list_episodes(finished=True) if episodes is None else list(episodes)
    if format == "parquet":
        from holotron.episodes.parquet import export_parquet

        export_parquet(store, path, chosen, images)
    else:
        export_lines(store, path, chosen, format, images == "embed")
    return len(chosen)


def import_(path: str | Path, store: EpisodeStore, format: Format, *, images: ImageFolder | None = None) -> list[str]:
    """Write a file's episodes into a store and return their ids; those the store has finished are left alone.

    `images` is where screenshots are that the file only names; without it, in the store itself. Damage is an error
    that names the line, and the episodes before it are there.
    """
    _check(format)
    if format == "parquet":
        from holotron.episodes.parquet import import_parquet

        return import_parquet(Path(path), store, images)
    return import_lines(Path(path), store, format, images)


def _check(format: str) -> None:
    if format not in get_args(Format):
        raise EpisodeError(f"there is no format {format!r}; choose one of {', '.join(get_args(Format))}")
