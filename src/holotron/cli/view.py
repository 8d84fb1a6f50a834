"""`holotron view`: episodes in a browser, live or as a report."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holotron.cli.errors import Misuse, misuse, no_episodes
from holotron.cli.output import examples, size
from holotron.cli.progress import passing_progress
from holotron.cli.terminal import visible
from holotron.env.browser.chromium import has_screen

if TYPE_CHECKING:
    from socket import socket

    from holotron.web.catalog import Catalog

EXAMPLES = examples(
    "holotron view runs/nightly",
    "holotron view runs/nightly --port 9000 --no-open   # over ssh -L 9000:127.0.0.1:9000",
    "holotron view runs/nightly --html report           # a folder to copy anywhere; open report/index.html",
    "holotron view runs/nightly --html report.html      # one file with everything inside, to send to someone",
)
DEFAULT_PORT = 8765
PortOption = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help=f"Port on this machine (default: {DEFAULT_PORT}, or any free one)."),
]
OpenOption = Annotated[
    bool, typer.Option("--open/--no-open", help="Open the page in a browser, where there is a screen.")
]


def view(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of episodes, of a run of train grpo, or of labels to review."),
    ],
    html: Annotated[
        Path | None, typer.Option(help="Write a report instead of serving: a folder, or one file named *.html.")
    ] = None,
    port: PortOption = None,
    open_: OpenOption = True,
) -> None:
    """Look at episodes step by step: what was seen, thought and done. New ones appear while a fleet runs.

    Of online RL, the figures of its iterations are shown, too.
    """
    if html is not None and port is not None:
        raise Misuse("--port is for serving and --html for writing; give one of them")
    if (folder / "labels.jsonl").exists():
        if html is not None:
            raise Misuse(f"{folder} holds labels, which are reviewed on a page that is served; leave --html out")
        _review(folder, port, open_)
        return
    catalog = _catalog(folder)
    if html is not None:
        _open(_write(catalog, html), open_)
        return
    from holotron.web.app import serve

    serve(catalog, listening(port, open_))


def listening(port: int | None, open_: bool, more: str = "") -> socket:
    """A socket for a page on this machine, whose address is told, and opened where that is wanted."""
    from holotron.web.app import address_of

    listener = _listen(port)
    typer.echo(f"{address_of(listener)}  (Ctrl-C ends it{more})")
    _open(address_of(listener), open_)
    return listener


def _open(page: str, wanted: bool) -> None:
    if wanted and has_screen():  # without one, Python would start a browser for terminals, and wait for it
        webbrowser.open(page)


def _catalog(folder: Path) -> Catalog:
    if not folder.is_dir():
        raise Misuse(f"there is no folder {folder}")
    from holotron.episodes.store import EpisodeStore
    from holotron.web.catalog import Catalog

    if (folder / "episodes" / "episodes").is_dir():  # a run's folder, which the store of its episodes is in
        folder = folder / "episodes"
    catalog = Catalog(EpisodeStore(folder))
    with passing_progress("reading episodes") as update:
        rows = catalog.rows(lambda done, total: update(completed=done, total=total))
    if not rows:
        raise no_episodes(folder)
    damaged = [row for row in rows if row.outcome == "damaged"]
    typer.echo(f"{len(rows):,} episodes in {folder}", err=True)
    for row in damaged[:5]:
        typer.echo(visible(f"damaged: {' '.join(row.detail.split())}"), err=True)
    if len(damaged) > 5:
        typer.echo(f"damaged: {len(damaged) - 5:,} more; the list shows them all", err=True)
    return catalog


def _review(folder: Path, port: int | None, open_: bool) -> None:
    """Labels of `holotron data annotate` that wait for a person."""
    from holotron.episodes.labels import LabelFolder
    from holotron.web.review import serve_review

    more = f"; decisions are kept in {folder / 'review.jsonl'}"
    serve_review(LabelFolder(folder), listening(port, open_, more))


def _write(catalog: Catalog, out: Path) -> str:
    from holotron.web.report import ReportError, write_report

    with misuse(ReportError):
        report = write_report(catalog.store, out, catalog)
    typer.echo(f"{report.episodes:,} episodes, {report.images:,} screenshots, {size(report.bytes)}", err=True)
    typer.echo(str(report.page))
    return report.page.resolve().as_uri()


def _listen(port: int | None) -> socket:
    from holotron.web.app import listen

    try:
        return listen(DEFAULT_PORT if port is None else port)
    except OSError as error:
        if port is None:
            return listen(0)
        raise OSError(f"port {port} cannot be used ({error.strerror}); choose another with --port") from error
