"""Fetches libraries by the ordinary clients of their registries, and keeps of each what is used."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

from holotron.suites.libraries.manifest import Library, all_libraries, fetched

CLIENTS: dict[str, Callable[[Library], list[str]]] = {
    "npm": lambda it: ["npm", "pack", "--silent", f"{it.package}@{it.version}"],
    "pypi": lambda it: [
        *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"),
        f"{it.package}=={it.version}",
    ],
    "debian": lambda it: ["apt-get", "download", "-q", f"{it.package}={it.version}"],
}
PAGES = {".html", ".htm"}
ASSETS = {".css", ".js", ".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".woff2"}
LARGEST, SMALLEST_PAGE = 400_000, 200
MOST_PAGES = 60  # of a library
TEXTS = {".html", ".htm", ".css", ".js"}


class FetchError(Exception):
    """A library could not be fetched."""


def fetch_libraries(tell: Callable[[str], None]) -> Path:
    """Fetch all that are not there yet. A library appears whole or not at all."""
    wanted: dict[Path, list[Library]] = {}
    for library in all_libraries().values():
        wanted.setdefault(library.folder, []).append(library)
    for folder, sharing in wanted.items():
        if not folder.is_dir():
            tell(f"{sharing[0].registry}: {sharing[0].package} {sharing[0].version}")
            _fetch(sharing, folder)
    return fetched()


def _fetch(sharing: list[Library], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        download, unpacked, kept = (Path(scratch) / name for name in ("download", "unpacked", "kept"))
        download.mkdir()
        unpacked.mkdir()
        _run(CLIENTS[sharing[0].registry](sharing[0]), download)
        [archive] = download.iterdir()
        if archive.suffix == ".deb":
            _run(["dpkg-deb", "-x", str(archive), str(unpacked)], download)
        else:
            wheel = archive.suffix == ".whl"
            shutil.unpack_archive(archive, unpacked, "zip" if wheel else "gztar", filter=None if wheel else "data")
        for library in sharing:
            for path in chosen_files(library, unpacked):
                target = kept / path.relative_to(unpacked)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        kept.rename(folder)


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise FetchError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-300:]}")


def chosen_files(library: Library, unpacked: Path) -> list[Path]:
    """The style sheet, some of the rendered pages, and what those name."""
    found = [
        path
        for place in (*library.pages, *library.fragments)
        for path in sorted((unpacked / place).rglob("*"))
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= LARGEST
    ]
    pages = [path for path in found if path.suffix in PAGES and path.stat().st_size >= SMALLEST_PAGE]
    pages = sorted(pages, key=lambda path: crc32(path.name.encode()))[:MOST_PAGES]
    # What a page names may name more: a style sheet its letters, for instance.
    assets = [path for path in found if path.suffix in ASSETS] if library.pages else []
    kept, named = list(pages), list(pages)
    while named:
        said = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in named if path.suffix in TEXTS)
        named = [path for path in assets if path not in kept and path.name in said]
        kept += named
    return [*([unpacked / library.sheet] if library.sheet else []), *kept]


def shipped(library: Library, folders: tuple[str, ...]) -> list[Path]:
    """The pages of a library that was fetched, in an order that does not depend on the disk's."""
    return sorted(path for place in folders for path in (library.folder / place).rglob("*") if path.suffix in PAGES)
