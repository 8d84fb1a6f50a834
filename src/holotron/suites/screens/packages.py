"""Real pages: the HTML that installed packages bring with them."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from zlib import crc32

from holotron.suites.screens.pages import SIZES
from holotron.suites.screens.rendering import Document

DEFAULT_FOLDERS = (Path(sys.prefix), Path("/usr/share"), Path("/usr/lib/python3"))
SMALLEST_FILE, LARGEST_FILE = 1_000, 300_000
HELD_OUT_SHARE = 10  # one file in so many


def find_files(folders: Iterable[Path] = (), *, held_out: bool = False) -> list[Path]:
    """HTML files under the folders, those of MiniWoB++ left out, in an order that does not depend on the disk's."""
    found: set[Path] = set()
    for folder in folders or DEFAULT_FOLDERS:
        for place, inner, names in os.walk(folder):
            inner[:] = sorted(
                name for name in inner if name != "miniwob" and not os.path.islink(os.path.join(place, name))
            )
            found.update(Path(place, name) for name in names if name.endswith((".html", ".htm")))
    kept = [path for path in sorted(found) if _worth_it(path)]
    return [path for path in kept if (crc32(path.name.encode()) % HELD_OUT_SHARE == 0) == held_out]


def make_package_page(files: Sequence[Path], seed: int, trial: int = 0) -> Document | None:
    """The file, size and place in it that a seed stands for; None where there are no files."""
    if not files:
        return None
    chance = random.Random(f"packages/{seed}/{trial}")
    path = chance.choice(files)
    width, height = chance.choice(SIZES)
    scroll = 0.0 if chance.random() < 0.4 else chance.random()
    return Document("", width, height, {"file": path.name}, path.as_uri(), scroll)


def _worth_it(path: Path) -> bool:
    try:
        return not path.is_symlink() and SMALLEST_FILE <= path.stat().st_size <= LARGEST_FILE
    except OSError:
        return False
