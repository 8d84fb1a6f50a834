"""`holotron film`: an episode as a moving picture, to show to someone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holotron.cli.errors import misuse, no_episodes
from holotron.cli.output import examples

if TYPE_CHECKING:
    from holotron.episodes.store import EpisodeStore

EXAMPLES = examples(
    "holotron film runs/one --out one.gif",
    "holotron film runs/many EPISODE --out episode.mp4 --seconds 1",
)


def film(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of episodes, as run --record writes it.")],
    episode: Annotated[str | None, typer.Argument(help="Its id; without one, the last that was begun.")] = None,
    out: Annotated[Path, typer.Option(help="A file that ends in .gif or .mp4.")] = Path("episode.gif"),
    seconds: Annotated[float, typer.Option(min=0.1, max=60, help="How long each step is shown.")] = 1.5,
    width: Annotated[int, typer.Option(min=100, max=4000, help="Of the film in pixels, at most.")] = 960,
) -> None:
    """Make a GIF or an MP4 of an episode: every screenshot, where the policy acted, and what it did in words."""
    from holotron.episodes.errors import EpisodeError
    from holotron.web.film import FilmError, FilmOptions, write_film

    store = opened_store(folder)
    with misuse(FilmError, EpisodeError):
        chosen = episode or max(store.list_episodes(), key=lambda info: info.started).id
        steps = write_film(store, chosen, out, FilmOptions(seconds, width))
    typer.echo(f"{steps} steps of {chosen}, {out.stat().st_size / 1024:,.0f} KiB", err=True)
    typer.echo(out)


def opened_store(folder: Path) -> EpisodeStore:
    """A store with at least one episode."""
    from holotron.episodes.store import EpisodeStore

    store = EpisodeStore(folder)
    if not folder.is_dir() or not store.list_episodes():
        raise no_episodes(folder)
    return store
