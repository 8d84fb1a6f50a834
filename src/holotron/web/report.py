"""A store as pages that open without a server: a folder, or one file with everything inside."""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from holotron.episodes.errors import EpisodeError
from holotron.episodes.files import write_whole
from holotron.episodes.store import EpisodeStore
from holotron.web.catalog import Catalog
from holotron.web.detail import compact_json, episode_json, steps_of, view_of
from holotron.web.page import GENERATOR, data_block, standalone

# A browser takes its time over a page of this size, and mail programs refuse it long before.
MAX_FILE_BYTES = 256 * 2**20


class ReportError(ValueError):
    """The report cannot be written there, or not like that."""


@dataclass(frozen=True)
class Report:
    """What was written: the page to open, and how much there is."""

    page: Path
    episodes: int
    images: int
    bytes: int


def write_report(store: EpisodeStore, out: str | Path, catalog: Catalog | None = None) -> Report:
    """Write the episodes of a store to be read anywhere; an earlier report at the same place is replaced.

    A name that ends in .html becomes one file; any other, a folder: index.html, images/ and episodes/, in which each
    episode is also a JSON file for other programs.
    """
    out = Path(out)
    catalog = Catalog(store) if catalog is None else catalog
    return _write_file(catalog, out) if out.suffix.lower() in (".html", ".htm") else _write_folder(catalog, out)


def _write_file(catalog: Catalog, path: Path) -> Report:
    if path.is_dir():
        raise ReportError(f"{path} is a folder; give another name for the report")
    content = _Content.of(catalog, "inline")
    images, size = 0, 0
    for digest, data in content.images(catalog.store):
        images, size = images + 1, size + len(data) * 4 // 3
        if size > MAX_FILE_BYTES:
            raise ReportError(
                f"the screenshots are more than one file should hold ({MAX_FILE_BYTES // 2**20} MiB); "
                f"write a folder instead, such as {path.with_suffix('')}"
            )
        content.blocks.append(data_block(f"image-{digest}", base64.b64encode(data).decode(), "text/plain"))
    page = content.page(catalog.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, page, sync=False)
    return Report(path, content.episodes, images, len(page))


def _write_folder(catalog: Catalog, folder: Path) -> Report:
    index = folder / "index.html"
    if folder.exists() and not folder.is_dir():
        raise ReportError(f"{folder} is a file; give a folder, or a name that ends in .html")
    if folder.is_dir() and any(folder.iterdir()) and not _is_report(index):
        raise ReportError(f"{folder} holds something else than a report; give a folder that is empty or not there yet")
    content = _Content.of(catalog, "files")
    page = content.page(catalog.name)
    folder.mkdir(parents=True, exist_ok=True)
    # The page comes first: if this is stopped half-way, the folder is known as a report that may be replaced.
    write_whole(index, page, sync=False)
    for name in ("images", "episodes"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    images, size = 0, len(page)
    for digest, data in content.images(catalog.store):
        (folder / "images" / f"{digest}.png").write_bytes(data)
        images, size = images + 1, size + len(data)
    for episode_id, text in content.texts.items():
        (folder / "episodes" / f"{episode_id}.json").write_text(text, encoding="utf-8")
        size += len(text)
    return Report(index, content.episodes, images, size)


def _is_report(index: Path) -> bool:
    try:
        with index.open(encoding="utf-8", errors="replace") as file:
            return GENERATOR in file.read(4096)
    except OSError:
        return False


@dataclass
class _Content:
    """What a page shows. An episode is the text that is offered for download, and stays one until it is opened."""

    episodes: int
    blocks: list[str]
    texts: dict[str, str] = field(default_factory=dict)
    digests: dict[str, None] = field(default_factory=dict)  # a set that keeps its order

    @classmethod
    def of(cls, catalog: Catalog, images: Literal["inline", "files"]) -> _Content:
        rows = catalog.rows()
        head = {"store": catalog.name, "written": time.time(), "images": images, "trained": catalog.training.last}
        data = compact_json({"head": head, "rows": [vars(row) for row in rows], "lines": catalog.training.lines()})
        content = cls(len(rows), [data_block("holotron-data", data)])
        for row in rows:
            if row.outcome != "damaged":
                content._add(catalog.store, row.id)
        return content

    def _add(self, store: EpisodeStore, episode_id: str) -> None:
        info = store.info(episode_id)
        steps, damage = steps_of(store, info)
        self.texts[episode_id] = episode_json(info, steps)
        views = compact_json({"views": [view_of(step) for step in steps], "damage": damage})
        self.blocks.append(data_block(f"episode-{episode_id}", self.texts[episode_id]))
        self.blocks.append(data_block(f"views-{episode_id}", views))
        self.digests.update((step.observation.image, None) for step in steps if step.observation.image is not None)

    def page(self, name: str) -> bytes:
        return standalone(f"{name} · Holotron", "\n".join(self.blocks)).encode()

    def images(self, store: EpisodeStore) -> Iterator[tuple[str, bytes]]:
        for digest in self.digests:
            try:
                yield digest, store.image(digest)
            except EpisodeError:
                continue  # the page says of each that it is missing
