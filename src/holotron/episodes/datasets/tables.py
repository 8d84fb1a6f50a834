"""Records of CSV and Parquet files; an image inside a Parquet file is named by its row and read when it is wanted."""

from __future__ import annotations

import csv
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from holotron.episodes.datasets.records import BadRecord, DatasetError, SourceFile, SourceRecord

TABLES = (".csv", ".parquet")
_INSIDE = re.compile(r"(?P<file>[^/\\]+\.parquet)#(?P<row>\d+):(?P<column>[^/\\:]+)")
_KEPT = 2  # groups of rows whose images stay in memory: rows are asked for in order


def read_table(file: SourceFile) -> Iterator[SourceRecord]:
    """The rows of a table as records. DatasetError where it cannot be read at all."""
    yield from _csv_rows(file) if file.path.suffix == ".csv" else _parquet_rows(file)


def _csv_rows(file: SourceFile) -> Iterator[SourceRecord]:
    with file.path.open(encoding="utf-8-sig", errors="replace", newline="") as opened:
        for number, row in enumerate(csv.DictReader(opened), 1):
            where = f"{file.path.name}:{number + 1}"
            whole = None not in row and None not in row.values()
            problem = None if whole else BadRecord("broken row", "the row has more or fewer cells than the head")
            yield SourceRecord(where, dict(row), file.images, problem)


def _parquet_rows(file: SourceFile) -> Iterator[SourceRecord]:
    """Rows without the bytes of their images, which are named instead."""
    table, number = _opened(file.path), 0
    pictures = [name for name in table.schema_arrow.names if _is_picture(table, name)]
    others = [name for name in table.schema_arrow.names if name not in pictures]
    for batch in table.iter_batches(batch_size=256, columns=[*others, *(f"{name}.path" for name in pictures)]):
        for row in batch.to_pylist():
            inside = {name: f"{file.path.name}#{number}:{name}" for name in pictures}
            yield SourceRecord(f"{file.path.name}:{number}", {**row, **inside}, file.path.parent)
            number += 1


def _opened(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise DatasetError(f"{path.name} is a Parquet file, which pyarrow reads: pip install pyarrow") from None
    try:
        return ParquetFile(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are of these kinds
        raise DatasetError(f"{path} is no Parquet file that can be read: {str(error)[:200]}") from None


def _is_picture(table: Any, name: str) -> bool:
    """Whether a column holds images as `datasets` writes them: bytes beside a path."""
    kind = table.schema_arrow.field(name).type
    fields = {kind.field(index).name for index in range(kind.num_fields)}
    return fields == {"bytes", "path"}


class TableImages:
    """The images inside Parquet files, a group of rows at a time."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[Path, int, str], tuple[int, list[Any]]] = OrderedDict()
        self._lock = Lock()

    def read(self, path: Path, row: int, column: str) -> bytes:
        with self._lock:
            for (known, _, name), (first, cells) in self._groups.items():
                if (known, name) == (path, column) and first <= row < first + len(cells):
                    return _bytes(cells[row - first], path, row)
            table, first = _opened(path), 0
            for group in range(table.num_row_groups):
                rows = table.metadata.row_group(group).num_rows
                if row < first + rows and column in table.schema_arrow.names:
                    cells = table.read_row_group(group, columns=[column]).column(0).to_pylist()
                    self._groups[path, group, column] = first, cells
                    while len(self._groups) > _KEPT:
                        self._groups.popitem(last=False)
                    return _bytes(cells[row - first], path, row)
                first += rows
        raise BadRecord("image missing", f"{path.name} has no row {row} with a column {column!r}")


def named_in_table(name: str) -> tuple[str, int, str] | None:
    """The file, row and column of an image's name that stands for one inside a table."""
    found = _INSIDE.fullmatch(name)
    return (found["file"], int(found["row"]), found["column"]) if found else None


def _bytes(cell: Any, path: Path, row: int) -> bytes:
    data = cell.get("bytes") if isinstance(cell, dict) else None
    if not isinstance(data, bytes):
        raise BadRecord("image missing", f"row {row} of {path.name} has no image inside")
    return data
