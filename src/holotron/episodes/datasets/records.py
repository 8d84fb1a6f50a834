"""The records of JSON, JSONL, CSV and Parquet files, one at a time, each with the place it was read from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_BYTES = 256 << 20  # of one record: fifty screenshots inside it are not yet half of that
CHUNK = 1 << 20
_DECODER = json.JSONDecoder()


class DatasetError(ValueError):
    """A data set that cannot be brought in or out as asked."""


class BadRecord(ValueError):
    """What is wrong with one record; kind: a few words under which such ones are counted."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class Unsupported(BadRecord):
    """Nothing is wrong with it, but there are no words for it here: it is left out and does not count as bad."""


@dataclass(frozen=True)
class SourceFile:
    """A file of records, and the folder in which its images are named."""

    path: Path
    images: Path


@dataclass(frozen=True)
class SourceRecord:
    """One record. problem: it could not be read, and this is why."""

    where: str
    value: Any
    images: Path
    problem: BadRecord | None = None


def source_files(source: Path, images: Path | None, names: Sequence[str] = ()) -> list[SourceFile]:
    """The files that a path stands for: itself, those of a folder, or those that a meta file lists.

    names: patterns of the files' names; without any, a folder's JSON and JSONL files, or its tables where it has none.
    Images are named from `images`, else from the folder itself, else from the file's folder. A meta file, as ScaleCUA
    has it, is an object whose values have `annotation` and `root`, both below the meta file's own folder.
    """
    if not source.exists():
        raise DatasetError(f"there is no file or folder {source}")
    if source.is_file():
        return _listed(source, images) or [SourceFile(source, images or source.parent)]
    every = sorted(path for path in source.rglob("*") if path.is_file())
    kinds = [names] if names else [("*.json", "*.jsonl"), ("*.csv", "*.parquet")]
    found = next((some for kind in kinds if (some := [path for path in every if any(map(path.match, kind))])), [])
    if not found:
        raise DatasetError(f"{source} has no file {' or '.join(names or ('*.json', '*.jsonl', '*.csv', '*.parquet'))}")
    return [SourceFile(path, images or source) for path in found]


def _listed(meta: Path, images: Path | None) -> list[SourceFile]:
    if meta.suffix != ".json" or meta.stat().st_size > CHUNK:
        return []
    try:
        value = json.loads(meta.read_bytes())
    except (ValueError, RecursionError):
        return []
    parts = list(value.values()) if isinstance(value, dict) else []
    if not parts or not all(isinstance(part, dict) and isinstance(part.get("annotation"), str) for part in parts):
        return []
    base = meta.parent.resolve()

    def below(name: str) -> Path:
        path = (base / name).resolve()
        if not path.is_relative_to(base):
            raise DatasetError(f"{meta} names {name[:200]!r}, which is not below its own folder")
        return path

    return [SourceFile(below(part["annotation"]), images or below(str(part.get("root", ".")))) for part in parts]


def read_records(file: SourceFile) -> Iterator[SourceRecord]:
    """Its records: lines of JSONL, elements of a JSON list, rows of a table. What cannot be read has a problem."""
    from holotron.episodes.datasets.tables import TABLES, read_table

    try:
        if file.path.suffix in TABLES:
            yield from read_table(file)
            return
        with file.path.open("rb") as opened:
            is_list = opened.read(CHUNK).lstrip()[:1] == b"["
        yield from _elements(file) if is_list else _lines(file)
    except OSError as error:
        raise DatasetError(f"{file.path} cannot be read: {error.strerror}") from error


def _lines(file: SourceFile) -> Iterator[SourceRecord]:
    with file.path.open("rb") as opened:
        number = 0
        while line := opened.readline(MOST_BYTES + 1):
            number += 1
            where, long = f"{file.path.name}:{number}", len(line) > MOST_BYTES
            while long and not line.endswith(b"\n") and line:
                line = opened.readline(CHUNK)
            if long:
                yield _broken(file, where, f"the line has more than {MOST_BYTES} bytes")
            elif line.strip():
                yield _decoded(file, where, line)


def _decoded(file: SourceFile, where: str, line: bytes) -> SourceRecord:
    try:
        return SourceRecord(where, json.loads(line), file.images)
    except (ValueError, RecursionError) as error:
        return _broken(file, where, str(error))


def _broken(file: SourceFile, where: str, why: str) -> SourceRecord:
    return SourceRecord(where, None, file.images, BadRecord("broken JSON", why[:200]))


def _elements(file: SourceFile) -> Iterator[SourceRecord]:
    """The elements of a list without the whole list in memory. After a broken one the rest cannot be found."""
    with file.path.open("r", encoding="utf-8", errors="replace") as opened:
        rest, number, ended = opened.read(CHUNK).lstrip()[1:], 0, False
        while True:
            rest = rest.lstrip()
            rest = rest[1:].lstrip() if rest.startswith(",") else rest
            where = f"{file.path.name}[{number}]"
            if rest.startswith("]"):
                return
            try:
                value, end = _DECODER.raw_decode(rest)
                # A number at the very end of what was read may go on.
                if end == len(rest) and not ended:
                    raise ValueError("not read to its end")
            except (ValueError, RecursionError) as error:
                more = "" if ended or isinstance(error, RecursionError) else opened.read(max(CHUNK, len(rest)))
                ended = not more
                if ended or len(rest) > MOST_BYTES:
                    yield _broken(file, where, f"{error}; the rest of the file is not read")
                    return
                rest += more
                continue
            yield SourceRecord(where, value, file.images)
            rest, number = rest[end:], number + 1
