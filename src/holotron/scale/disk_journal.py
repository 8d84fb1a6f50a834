"""The journal on disk, for a server that is started again: a file of each session, and one of each image.

A turn is appended to its session's file before its client knows of its end; where a session goes back, its file is
written anew beside the old one. So the folder is as large as what is open, and holds after a kill -9 what clients were
told. Nothing is flushed to the disk itself: where the machine dies, the last seconds may be missing. A line that is not
whole ends its session there.
"""

from __future__ import annotations

import fcntl
import json
import logging
import weakref
from array import array
from base64 import b64decode, b64encode
from contextlib import suppress
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

from holotron.scale.journal import JournalEntry, KeptImage

log = logging.getLogger(__name__)


class DiskJournal:
    """One server's. OSError where another server has the folder, or it has sessions of another model."""

    def __init__(self, folder: Path, model: str) -> None:
        self._sessions, self._images, self._served = folder / "sessions", folder / "images", folder / "served.json"
        for each in (folder, self._sessions, self._images):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise OSError(f"{folder} is the journal of a server that runs; give this one a folder of its own") from None
        self._lock.seek(0)
        if (before := self._lock.read()) not in ("", model) and any(self._sessions.iterdir()):
            self._lock.close()
            raise OSError(f"{folder} has sessions of {before}, which are of no use to {model}; give it another folder")
        self._lock.truncate(0)
        self._lock.write(model)
        self._lock.flush()
        self._lengths: dict[str, tuple[int, int]] = {}  # tokens and turns in the file of each session
        self._is_closed = False

    def close(self) -> None:
        """Leave the folder to the next server."""
        self._is_closed = True
        self._lock.close()

    def load(self) -> list[JournalEntry]:
        """The sessions that were open. What belongs to none is removed."""
        images: dict[str, KeptImage] = {}
        entries = [entry for path in self._sessions.glob("*.jsonl") if (entry := self._read(path, images)) is not None]
        for path in (*self._sessions.iterdir(), *self._images.iterdir()):
            if path.name not in images and path.stem not in self._lengths:
                path.unlink()
        return entries

    def keep(self, data: bytes) -> KeptImage:
        """An image, in a file that goes with the last session which has it."""
        path = self._images / f"{_digest(data)}-{uuid4().hex}"
        path.write_bytes(data)
        return self._image(path)

    def add(self, entry: JournalEntry) -> None:
        """Append the turns that are new since the last time."""
        if entry.id in self._lengths:
            self._write(entry, self._path(entry.id), "ab", *self._lengths[entry.id])
        else:
            self.write(entry)

    def write(self, entry: JournalEntry) -> None:
        """Write all of a session anew. One that nobody was told of is not kept."""
        if entry.about is not None:
            self._lengths.pop(entry.id, None)
            self._write(entry, self._path(entry.id).with_suffix(".new"), "wb", 0, 0)

    def remove(self, session_id: str) -> None:
        if self._lengths.pop(session_id, None) is not None:
            self._path(session_id).unlink(missing_ok=True)

    @property
    def served(self) -> dict[str, Any] | None:
        """Which weights and adapters were served; None for those that a server begins with."""
        return json.loads(self._served.read_text()) if self._served.exists() else None

    @served.setter
    def served(self, served: dict[str, Any]) -> None:
        fresh = self._served.with_suffix(".new")
        fresh.write_text(json.dumps(served))
        fresh.replace(self._served)

    def _path(self, session_id: str) -> Path:
        return self._sessions / f"{session_id}.jsonl"

    def _write(self, entry: JournalEntry, path: Path, mode: str, tokens: int, turns: int) -> None:
        lines = []
        if mode == "wb":
            lines.append({"id": entry.id, "options": entry.options, "about": entry.about})
        for turn, note in zip(entry.turns[turns:], entry.notes[turns:], strict=True):
            lines.append(_piece(entry, tokens, turn.end) | {"turn": [turn.start, turn.prompt_end], "note": note})
            tokens = turn.end
        if tokens < len(entry.tokens):
            lines.append(_piece(entry, tokens, len(entry.tokens)) | {"turn": None, "note": entry.asked})
        try:
            with path.open(mode) as file:
                file.write(b"".join(map(_line, lines)))
            path.replace(self._path(entry.id))
        except OSError:
            log.exception("the session %s could not be written to the journal", entry.id)
            self._lengths.pop(entry.id, None)  # the next time all of it is
        else:
            self._lengths[entry.id] = len(entry.tokens), len(entry.turns)

    def _read(self, path: Path, images: dict[str, KeptImage]) -> JournalEntry | None:
        lines = map(_said, path.read_bytes().splitlines(keepends=True))
        if (first := next(lines, None)) is None:
            return None
        entry = JournalEntry(**first)
        for said in takewhile(bool, lines):
            assert said is not None
            names = [name for _, name in said["images"]]
            if any(not (self._images / name).is_file() for name in names):
                log.warning("the session %s goes back: an image of it is gone", entry.id)
                break
            for name in names:
                images[name] = images.get(name) or self._image(self._images / name)
            tokens = array("i", b64decode(said["tokens"]))
            found = [(place, images[name]) for place, name in said["images"]]
            entry.restore(tokens, found, said["turn"], said["note"])
        if entry.notes and (last := entry.notes[-1]) is not None and last["left"] and not last["keep_partial"]:
            entry.rollback(-1)  # nobody heard its end
        self.write(entry)
        return entry

    def _image(self, path: Path) -> KeptImage:
        image = DiskImage(None, path)
        weakref.finalize(image, self._drop, path).atexit = False
        return image

    def _drop(self, path: Path) -> None:
        if not self._is_closed:
            with suppress(OSError):
                path.unlink()


class DiskImage(KeptImage):
    """An image in the journal's folder, whose name says what it holds. OSError where that is not so."""

    def read(self) -> bytes:
        data = super().read()
        if self.path is not None and not self.path.name.startswith(_digest(data)):
            raise OSError(f"{self.path.name} was altered on the disk")
        return data


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _piece(entry: JournalEntry, start: int, end: int) -> dict[str, Any]:
    found = [(place, image.path) for place, image in entry.images if start <= place < end]
    images = [[place, path.name] for place, path in found if path is not None]
    return {"tokens": b64encode(entry.tokens[start:end].tobytes()).decode(), "images": images}


def _line(said: dict[str, Any]) -> bytes:
    words = json.dumps(said).encode()
    return b"%08x %s\n" % (crc32(words), words)


def _said(line: bytes) -> dict[str, Any] | None:
    words = line[9:-1]
    if line[-1:] != b"\n" or line[:9] != b"%08x " % crc32(words):
        return None
    said: dict[str, Any] = json.loads(words)
    return said
