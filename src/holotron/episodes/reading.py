"""Reading an episode's folder: its meta.json and the lines of its steps.jsonl."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from holotron.env.task import Noun
from holotron.episodes.errors import Damaged, NewerSchema
from holotron.episodes.record import SCHEMA, EpisodeInfo, Step

META, STEPS = "meta.json", "steps.jsonl"
SomeNoun = TypeVar("SomeNoun", bound=Noun)


def encode(noun: Noun, **more: Any) -> bytes:
    """One line of JSON."""
    value = {**more, **noun.model_dump(mode="json")}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(kind: type[SomeNoun], data: bytes | str, where: str) -> SomeNoun:
    """The noun in a JSON text; what is wrong with it is said with the place it was read from."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Damaged(
            f"{where} is not a valid {kind.__name__}: {field + ': ' if field else ''}{first['msg']}"
        ) from None


def parse_json(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where} is not valid JSON: {error}") from None


def read_info(folder: Path) -> EpisodeInfo:
    """What meta.json says."""
    path = folder / META
    try:
        value = parse_json(path.read_bytes(), str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise Damaged(f"{path} is missing") from None
    if not isinstance(value, dict):
        raise Damaged(f"{path} is not a JSON object")
    check_schema(value.pop("schema", None), str(path))
    try:
        info = EpisodeInfo.model_validate(value)
    except ValidationError as error:
        raise Damaged(f"{path} is not a valid EpisodeInfo: {error.errors(include_url=False)[0]['msg']}") from None
    if info.id != folder.name:
        raise Damaged(f"{path} belongs to the episode {info.id}, not to this folder")
    return info


def check_schema(schema: object, where: str) -> None:
    """Whether this version can read what has that schema number."""
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise Damaged(f"{where} has no schema number")
    if schema > SCHEMA:
        raise NewerSchema(
            f"{where} has schema {schema}, and this version reads up to {SCHEMA}; install a newer holotron to read it"
        )


def read_steps(folder: Path, info: EpisodeInfo, salvage: bool = False) -> Iterator[Step]:
    """The steps, in order. Of an unfinished episode, those before a torn last line."""
    path = folder / STEPS
    for number, line in enumerate(step_lines(folder, info, salvage), 1):
        step = decode(Step, line, f"{path}:{number}")
        if step.index != number - 1:
            raise Damaged(f"{path}:{number} is step {step.index}, and step {number - 1} belongs there")
        yield step


def step_lines(folder: Path, info: EpisodeInfo, salvage: bool = False) -> list[bytes]:
    """The lines that were written to their end; Damaged if a finished episode has others than were written."""
    guarded = info.finished and not salvage
    path = folder / STEPS
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{path} is missing") from None
    if guarded and len(data) != info.steps_bytes:
        raise Damaged(f"{path} has {len(data)} bytes, and {info.steps_bytes} were written")
    if guarded and hashlib.sha256(data).hexdigest() != info.steps_sha256:
        raise Damaged(f"{path} was changed after it was written")
    return data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]
