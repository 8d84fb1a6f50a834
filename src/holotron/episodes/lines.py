"""Episodes as JSONL, one per line: who and how it ended as we keep it, the steps in another vocabulary."""

from __future__ import annotations

import base64
import binascii
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holotron.actions.action import ActionError
from holotron.actions.dialects.fields import Inexpressible
from holotron.episodes.errors import Damaged, EpisodeError, NewerSchema
from holotron.episodes.images import PNG_SIGNATURE, ImageFolder
from holotron.episodes.line_formats import FORMATS, LineFormat, read_steps
from holotron.episodes.reading import check_schema, decode, parse_json
from holotron.episodes.record import SCHEMA, EpisodeInfo, ObservationRecord, StepWithImage
from holotron.episodes.store import EpisodeStore

PNG_URL = "data:image/png;base64,"
_REFERENCE = re.compile(r"images/[0-9a-f]{2}/([0-9a-f]{64})\.png")
_DATA_URL = re.compile(r"data:image/[a-z+.-]+;base64,")
_GUARDS = {"step_count", "steps_bytes", "steps_sha256"}


def write_lines(store: EpisodeStore, path: Path, episodes: list[EpisodeInfo], name: str, embed: bool) -> None:
    """Write the episodes, one at a time in memory."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for info in episodes:
            file.write(json.dumps(_line(store, info, FORMATS[name], embed), ensure_ascii=False) + "\n")


def read_lines(path: Path, name: str, images: ImageFolder) -> Iterator[tuple[EpisodeInfo, list[StepWithImage]]]:
    """The episodes of a file, one after another."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _read_line(line, f"{path}:{number}", FORMATS[name], images)


def _line(store: EpisodeStore, info: EpisodeInfo, form: LineFormat, embed: bool) -> dict[str, Any]:
    def url(seen: ObservationRecord) -> str | None:
        if seen.image is None:
            return None
        if embed:
            return PNG_URL + base64.b64encode(store.image(seen.image)).decode()
        return store.images.path_of(seen.image).relative_to(store.folder).as_posix()

    steps = list(store.steps(info.id))
    try:
        written = form.write(info.task, steps, url)
    except Inexpressible as error:
        raise EpisodeError(f"the episode {info.id} cannot be written in this format: {error}") from error
    except ActionError as error:
        raise Damaged(f"the episode {info.id} holds an action this version does not know: {error}") from error
    head = info.model_dump(mode="json", exclude=_GUARDS)
    return {"schema": SCHEMA, "format": form.name, "episode": head, "steps": written}


def _read_line(
    line: bytes, where: str, form: LineFormat, images: ImageFolder
) -> tuple[EpisodeInfo, list[StepWithImage]]:
    value = parse_json(line, where)
    if not isinstance(value, dict) or value.get("format") != form.name:
        found = value.get("format") if isinstance(value, dict) else None
        raise Damaged(f"{where} is not an episode in the format {form.name}; its format is {str(found)[:40]!r}")
    check_schema(value.get("schema"), where)
    info = decode(EpisodeInfo, json.dumps(value.get("episode")), f"{where}, episode")
    try:
        found = [(step, None if url is None else _load(url, images)) for step, url in read_steps(form, value["steps"])]
    except NewerSchema:
        raise
    except (ActionError, KeyError, TypeError, AttributeError, ValueError) as error:
        kind = f"{type(error).__name__}: " if isinstance(error, KeyError | TypeError | AttributeError) else ""
        raise Damaged(f"{where}, steps: {' '.join(f'{kind}{error}'.split())[:300]}") from None
    return info, found


def _load(url: str, images: ImageFolder) -> bytes:
    """The screenshot behind a data URL or a reference into a store; other image formats become PNG."""
    reference = _REFERENCE.fullmatch(url)
    if reference is not None:
        return images.get(reference[1])
    start = _DATA_URL.match(url)
    if start is None:
        raise Damaged(f"a screenshot is a data URL or a file of a store, not {url[:60]!r}")
    try:
        data = base64.b64decode(url[start.end() :], validate=True)
    except binascii.Error as error:
        raise Damaged(f"a screenshot's data URL is damaged: {error}") from None
    return data if data.startswith(PNG_SIGNATURE) else _as_png(data)


def _as_png(data: bytes) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.convert("RGB").save(buffer, "PNG")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise Damaged(f"a screenshot is not an image: {error}") from None
    return buffer.getvalue()
