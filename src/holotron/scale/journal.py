"""What the front remembers of every session, so that it can be rebuilt where its replica died: token ids and images."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import weakref
from array import array
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holotron.engine.session_state import Turn

log = logging.getLogger(__name__)

MEMORY_BYTES = 512 * 2**20
MOST_BEHIND = 16  # images on their way to the disk before turns wait for it


class KeptImage:
    """The file of an image, in memory or on disk. Forks share it; it goes with the last of them."""

    def __init__(self, data: bytes | None, path: Path | None = None) -> None:
        self._data = data
        self.path = path

    def read(self) -> bytes:
        data = self._data  # a thread may be moving it
        return data if data is not None else self.path.read_bytes()  # type: ignore[union-attr]

    def spill(self, path: Path) -> None:
        """Move to that file; where the disk takes it not, it stays in memory."""
        assert self._data is not None
        weakref.finalize(self, path.unlink, missing_ok=True)
        try:
            path.write_bytes(self._data)
        except OSError as error:
            log.warning("an image of a session stays in memory: %s", error)
        else:
            self.path, self._data = path, None


class ImageKeeper:
    """Keeps the latest images in memory and earlier ones in a folder that goes with it.

    A thread writes them: 2 MB take a disk as long as everything else that is done for a turn here.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._held = 0
        self._recent: deque[tuple[weakref.ref[KeptImage], int]] = deque()
        self._folder = tempfile.TemporaryDirectory(prefix="holotron-journal-")
        self._spilled = 0
        self._writer = ThreadPoolExecutor(1, "holotron-journal")
        self._behind: deque[asyncio.Future[None]] = deque()

    async def keep(self, data: bytes) -> KeptImage:
        image = KeptImage(data)
        self._recent.append((weakref.ref(image), len(data)))
        self._held += len(data)
        while self._held > self._memory_bytes:
            oldest, size = self._recent.popleft()
            self._held -= size
            if (found := oldest()) is not None:
                self._spilled += 1
                path = Path(self._folder.name) / f"{self._spilled}.image"
                self._behind.append(asyncio.get_running_loop().run_in_executor(self._writer, found.spill, path))
        while self._behind and (self._behind[0].done() or len(self._behind) > MOST_BEHIND):
            await self._behind.popleft()
        return image

    def close(self) -> None:
        self._writer.shutdown(cancel_futures=True)
        self._folder.cleanup()


@dataclass(eq=False)
class JournalEntry:
    """One session as it was after its last turn. What the server says of it and of its turns is kept as it is."""

    id: str
    options: dict[str, Any]  # it was opened with
    tokens: array[int] = field(default_factory=lambda: array("i"))
    turns: list[Turn] = field(default_factory=list)
    images: list[tuple[int, KeptImage]] = field(default_factory=list)  # each with the place of its first token
    about: dict[str, Any] | None = None
    notes: list[dict[str, Any] | None] = field(default_factory=list)  # of the turns
    asked: dict[str, Any] | None = None  # the note of a turn that was rolled back to its prompt

    def add_turn(
        self,
        prompt: Sequence[int],
        images: Sequence[tuple[int, KeptImage]],
        generated: Sequence[int],
        note: dict[str, Any] | None = None,
    ) -> None:
        """A turn that has ended, however it did."""
        start, before = self.turns[-1].end if self.turns else 0, len(self.tokens)
        self.images += [(before + offset, image) for offset, image in images]
        self.tokens.extend(prompt)
        prompt_end = len(self.tokens)
        self.tokens.extend(generated)
        self.turns.append(Turn(start, prompt_end, len(self.tokens)))
        self.notes.append(note)
        self.asked = None

    def restore(
        self,
        tokens: Sequence[int],
        images: Sequence[tuple[int, KeptImage]],
        turn: tuple[int, int] | None,
        note: dict[str, Any] | None,
    ) -> None:
        """What follows in a file: a turn, by where it and its prompt begin and end, or a prompt without an answer."""
        self.tokens.extend(tokens)
        self.images += images
        if turn is None:
            self.asked = note
        else:
            self.turns.append(Turn(*turn, len(self.tokens)))
            self.notes.append(note)
            self.asked = None

    def rollback(self, turn: int, keep_prompt: bool = False) -> None:
        """As the engine does; a turn that never ended here is not known, and nothing changes."""
        if not -len(self.turns) <= turn < len(self.turns):
            return
        gone = self.turns[turn]
        self.asked = self.notes[turn] if keep_prompt else None
        del self.notes[turn % len(self.turns) :]
        del self.turns[turn % len(self.turns) :]
        self._truncate(gone.prompt_end if keep_prompt else gone.start)

    def fork(self, id_: str, turns: int | None = None) -> JournalEntry:
        """The same under another id, or as it was after its first so many turns."""
        fork = replace(self, id=id_, tokens=self.tokens[:], turns=list(self.turns), images=list(self.images))
        fork.notes = list(self.notes)
        if turns is not None:
            del fork.turns[turns:], fork.notes[turns:]
            fork.asked = None
            fork._truncate(fork.turns[-1].end if fork.turns else 0)
        return fork

    def _truncate(self, position: int) -> None:
        del self.tokens[position:]
        self.images = [(place, image) for place, image in self.images if place < position]
