"""Files that hold many examples.

A shard is a plain tar, WebDataset-style: for each example `KEY.json`, and beside it `KEY.0.png`, `KEY.1.png`, … . It
can be read as a stream, by this project and by others.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from holotron.episodes.examples import Example, ExampleError, ExampleTurn
from holotron.episodes.files import sync_path

SUFFIX = ".tar"


class ShardWriter:
    """Writes examples into PREFIX-00000.tar and on; a shard has its final name only once it is whole.

    `with ShardWriter(Path("out/ground"), shard_bytes=32 << 20) as shards: shards.add(example)`
    """

    def __init__(self, prefix: Path, shard_bytes: int = 64 << 20) -> None:
        self._prefix, self._limit = prefix, shard_bytes
        self._tar: tarfile.TarFile | None = None
        self._count = self._in_shard = 0
        prefix.parent.mkdir(parents=True, exist_ok=True)

    def add(self, example: Example) -> None:
        if self._tar is None:
            self._tar = tarfile.open(self._open_path, "w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
        images = [turn.image for turn in example.turns if turn.image is not None]
        turns = [
            {"said": turn.said, "answer": turn.answer, "image": turn.image is not None, "learn": turn.learn}
            for turn in example.turns
        ]
        text = json.dumps({"kind": example.kind, "about": dict(example.about), "turns": turns}, ensure_ascii=False)
        key = f"{self._in_shard:06d}"
        self._member(f"{key}.json", text.encode())
        for index, image in enumerate(images):
            self._member(f"{key}.{index}.png", image)
        self._in_shard += 1
        if self._tar.offset >= self._limit:
            self._finish()

    def close(self) -> None:
        if self._tar is not None:
            self._finish()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _open_path(self) -> Path:
        return self._prefix.with_name(f".{self._prefix.name}-writing-{os.getpid()}{SUFFIX}")

    def _member(self, name: str, data: bytes) -> None:
        assert self._tar is not None
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))

    def _finish(self) -> None:
        assert self._tar is not None
        self._tar.close()
        sync_path(self._open_path)
        while (path := self._prefix.with_name(f"{self._prefix.name}-{self._count:05d}{SUFFIX}")).exists():
            self._count += 1
        os.rename(self._open_path, path)
        self._tar, self._in_shard = None, 0


def shard_paths(sources: Iterable[Path]) -> list[Path]:
    """The shards that files, folders or prefixes stand for, sorted; ExampleError for one that stands for none."""
    paths: list[Path] = []
    for source in sources:
        if source.is_file():
            found = [source]
        elif source.is_dir():
            found = sorted(path for path in source.rglob(f"*{SUFFIX}") if not path.name.startswith("."))
        else:
            found = sorted(source.parent.glob(f"{source.name}-*{SUFFIX}"))
        if not found:
            raise ExampleError(f"there are no shards at {source}")
        paths += found
    return paths


def read_shard(path: Path) -> Iterator[Example]:
    """The examples of one shard, in order; ExampleError where it is damaged."""
    try:
        with tarfile.open(path, "r:") as tar:
            head: dict[str, Any] | None = None
            images: list[bytes] = []
            for member in tar:
                file = tar.extractfile(member)
                if file is None:
                    raise ExampleError(f"{path}: {member.name} is no file")
                data = file.read()
                if len(data) != member.size:
                    raise ExampleError(f"{path}: {member.name} is cut short")
                if member.name.endswith(".json"):
                    if head is not None:
                        yield _example(path, head, images)
                    head, images = json.loads(data), []
                else:
                    images.append(data)
            if head is not None:
                yield _example(path, head, images)
    except (tarfile.TarError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ExampleError(f"{path} is damaged: {error}") from error


def _example(path: Path, head: dict[str, Any], images: list[bytes]) -> Example:
    try:
        rest = iter(images)
        turns = tuple(
            ExampleTurn(turn["said"], turn["answer"], next(rest) if turn["image"] else None, turn["learn"])
            for turn in head["turns"]
        )
        return Example(head["kind"], turns, head["about"])
    except (KeyError, TypeError, StopIteration, RuntimeError) as error:
        raise ExampleError(f"{path}: an example lacks {error or 'an image'}") from error
