"""Episodes as one Parquet file, a row per step, from which the very same episodes can be made again.

The columns one would ask for stand by themselves; the rest of a step is JSON in `step_json`, and the episode itself in
`episode_json` of its first row. An episode without steps is a row without a step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holotron.episodes.errors import Damaged
from holotron.episodes.images import ImageFolder
from holotron.episodes.reading import check_schema, decode
from holotron.episodes.record import SCHEMA, EpisodeInfo, Step, StepWithImage
from holotron.episodes.store import EpisodeStore

SCHEMA_KEY = b"holotron.episodes.schema"
GROUP_BYTES, GROUP_ROWS = 32 * 2**20, 512
READ_ROWS = 16
# Of a model's output, one value per token: as columns they are a tenth of their size as JSON.
TOKENS = {
    "prompt_ids": pa.list_(pa.int32()),
    "token_ids": pa.list_(pa.int32()),
    "logprobs": pa.list_(pa.float64()),
    "model_logprobs": pa.list_(pa.float64()),
    "forced": pa.list_(pa.bool_()),
}
COLUMNS = pa.schema(
    [
        ("episode_id", pa.string()),
        ("step", pa.int32()),
        ("benchmark", pa.string()),
        ("task_name", pa.string()),
        ("task", pa.string()),
        ("seed", pa.int64()),
        ("reason", pa.string()),
        ("success", pa.bool_()),
        ("reward", pa.float64()),
        ("output", pa.string()),
        ("actor", pa.string()),
        ("action", pa.string()),
        ("teacher", pa.string()),
        *TOKENS.items(),
        ("image_sha256", pa.string()),
        ("image", pa.binary()),
        ("step_json", pa.string()),
        ("episode_json", pa.string()),
    ],
    metadata={SCHEMA_KEY: str(SCHEMA).encode()},
)
_NEEDED = {"episode_id", "step_json", "episode_json", "image_sha256", "image"}


def write_parquet(store: EpisodeStore, path: Path, episodes: list[EpisodeInfo], embed: bool) -> None:
    """Write the episodes; no more than a group of rows is held in memory."""
    with pq.ParquetWriter(path, COLUMNS, compression="zstd") as writer:
        for group in _groups(store, episodes, embed):
            writer.write_table(pa.Table.from_pylist(group, schema=COLUMNS))


def read_parquet(path: Path, images: ImageFolder | None) -> Iterator[tuple[EpisodeInfo, Iterator[StepWithImage]]]:
    """The episodes of a file, one after another; the steps of one can be read until the next is asked for."""
    begun = 0

    def episode(found: tuple[str, dict[str, Any]]) -> int:
        nonlocal begun
        begun += found[1]["episode_json"] is not None
        return begun

    for number, rows in groupby(_rows(path), episode):
        where, first = next(rows)
        if number == 0:
            raise _stray(where, first)
        info = decode(EpisodeInfo, first["episode_json"], f"{where}, episode_json")
        yield info, _read_steps(info, chain([(where, first)], rows), images)  # noqa: B031 (it is one use)


def _stray(where: str, row: dict[str, Any]) -> Damaged:
    return Damaged(f"{where} belongs to the episode {row['episode_id']}, whose first row is not there")


def _groups(store: EpisodeStore, episodes: list[EpisodeInfo], embed: bool) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    size = 0
    for info in episodes:
        for row in _episode_rows(store, info, embed):
            group.append(row)
            tokens = sum(len(row[name] or ()) for name in TOKENS)
            size += len(row["image"] or b"") + len(row["step_json"] or "") + 8 * tokens
            if size >= GROUP_BYTES or len(group) >= GROUP_ROWS:
                yield group
                group, size = [], 0
    if group:
        yield group


def _episode_rows(store: EpisodeStore, info: EpisodeInfo, embed: bool) -> Iterator[dict[str, Any]]:
    outcome = info.outcome
    common = {
        "episode_id": info.id,
        "benchmark": info.task.benchmark,
        "task_name": info.task.name,
        "task": info.task.text,
        "seed": info.task.seed,
        "reason": outcome and outcome.reason,
        "success": outcome and outcome.success,
        "reward": outcome and outcome.reward,
    }
    first = {"episode_json": info.model_dump_json()}
    rows = (_step_row(store, step, embed) for step in store.steps(info.id))
    for row in rows:
        yield dict.fromkeys(COLUMNS.names) | common | first | row
        first = {}
    if first:
        yield dict.fromkeys(COLUMNS.names) | common | first


def _step_row(store: EpisodeStore, step: Step, embed: bool) -> dict[str, Any]:
    output, digest = step.output, step.observation.image
    return {
        "step": step.index,
        "output": output and output.text,
        "actor": step.actor,
        "action": step.action and step.action.text,
        "teacher": step.teacher and step.teacher.text,
        **{name: output and getattr(output, name) for name in TOKENS},
        "image_sha256": digest,
        "image": store.image(digest) if digest is not None and embed else None,
        "step_json": step.model_dump_json(exclude={"output": set(TOKENS)}),
    }


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows, and where each stands."""
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            missing = _NEEDED - set(file.schema_arrow.names)
            if SCHEMA_KEY not in metadata or missing:
                raise Damaged(
                    f"{path} was not written by an export of episodes; it lacks {sorted(missing) or 'a mark'}"
                )
            mark = metadata[SCHEMA_KEY].decode(errors="replace")
            check_schema(int(mark) if mark.isdecimal() else None, str(path))
            rows = (row for batch in file.iter_batches(READ_ROWS) for row in batch.to_pylist())
            for number, row in enumerate(rows, 1):
                yield f"{path}, row {number}", row
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"{path} is not a whole Parquet file: {error}") from error


def _read_steps(
    info: EpisodeInfo, rows: Iterable[tuple[str, dict[str, Any]]], images: ImageFolder | None
) -> Iterator[StepWithImage]:
    for where, row in rows:
        if row["episode_id"] != info.id:
            raise _stray(where, row)
        if row["step_json"] is not None:
            yield _read_step(row, where, images)


def _read_step(row: dict[str, Any], where: str, images: ImageFolder | None) -> StepWithImage:
    text = row["step_json"]
    # Files of the first schema have fewer of them.
    if tokens := {name: row[name] for name in TOKENS if row.get(name) is not None}:
        try:
            value = json.loads(text)
            value["output"] |= tokens
        except (ValueError, TypeError, KeyError) as error:
            raise Damaged(f"{where}, step_json is not valid: {error}") from None
        text = json.dumps(value)
    step = decode(Step, text, f"{where}, step_json")
    image, digest = row["image"], row["image_sha256"]
    if image is None and digest is not None and images is not None:
        image = images.get(digest)
    return step, image
