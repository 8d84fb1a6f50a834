"""Writing one episode: step by step into a file that only grows, and its outcome at the very end."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Literal

from holotron.episodes.errors import BeingWritten, EpisodeError
from holotron.episodes.files import PARTIAL, full_disk_named, lock, sync_path, write_all, write_whole
from holotron.episodes.images import ImageFolder, png_size
from holotron.episodes.reading import META, STEPS, encode
from holotron.episodes.record import SCHEMA, EpisodeInfo, Outcome, Step
from holotron.episodes.redaction import Redact, redacted

Sync = Literal["step", "episode", "never"]


class EpisodeWriter:
    """An episode that is being written; EpisodeStore.begin makes them.

    While it is open the steps file is locked, so that there is one writer. Leaving the `with` block without finish
    leaves the episode unfinished. After StoreFull the same call may be repeated: nothing of the failed one is kept.
    """

    def __init__(
        self, folder: Path, info: EpisodeInfo, descriptor: int, images: ImageFolder, redact: Redact | None, sync: Sync
    ) -> None:
        self.info = info
        self.folder = folder
        self.steps = 0
        self._descriptor: int | None = descriptor
        self._images = images
        self._redact = redact
        self.hides_prompts = False  # a secret was taken out of the task or of a step
        self._sync = sync
        self._size = 0
        self._hash = hashlib.sha256()
        self._torn = False
        self._unsynced: set[Path] = set()

    @classmethod
    def create(
        cls, folder: Path, info: EpisodeInfo, images: ImageFolder, redact: Redact | None, sync: Sync
    ) -> EpisodeWriter:
        """Claim the folder: it appears at once with its meta.json and a locked steps file, or not at all."""
        staging = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}{PARTIAL}")
        descriptor: int | None = None
        claimed = False
        with full_disk_named(folder):
            try:
                staging.mkdir(parents=True)
                (staging / STEPS).touch()
                descriptor = lock(staging / STEPS)
                assert descriptor is not None
                write_whole(staging / META, encode(info, schema=SCHEMA), sync != "never")
                try:
                    # A folder with something in it cannot be replaced by renaming, so only one writer succeeds.
                    staging.rename(folder)
                except OSError as error:
                    if not folder.exists():
                        raise
                    raise BeingWritten(f"the episode {info.id} was begun by another writer") from error
                claimed = True
                if sync != "never":
                    sync_path(folder.parent)
            except BaseException:
                shutil.rmtree(folder if claimed else staging, ignore_errors=True)
                if descriptor is not None:
                    os.close(descriptor)
                raise
        return cls(folder, info, descriptor, images, redact, sync)

    def add_step(self, step: Step, image: bytes | None = None) -> Step:
        """Append a step and keep its screenshot, a PNG; returns the step as it was written."""
        descriptor = self._open()
        if step.index != self.steps:
            raise EpisodeError(f"step {step.index} cannot follow {self.steps} steps of the episode {self.info.id}")
        step = self._with_image(step, image)
        if self._redact is not None:
            step, before = redacted(step, self._redact), step
            # What was told may have held the secret, too, and can be read from its tokens.
            self.hides_prompts = self.hides_prompts or step != before
            if self.hides_prompts and step.output is not None:
                step = step.model_copy(update={"output": step.output.model_copy(update={"prompt_ids": None})})
        line = encode(step)
        path = self.folder / STEPS
        with full_disk_named(path):
            self._mend()
            self._torn = True
            try:
                os.lseek(descriptor, self._size, os.SEEK_SET)
                write_all(descriptor, line)
                if self._sync == "step":
                    os.fsync(descriptor)
            except BaseException:
                self._mend()
                raise
        self._torn = False
        self._size += len(line)
        self._hash.update(line)
        self.steps += 1
        return step

    def finish(self, outcome: Outcome, ended: float | None = None) -> EpisodeInfo:
        """Write the outcome. Only then is the episode finished, and all it consists of is on the disk before."""
        descriptor = self._open()
        info = self.info.model_copy(
            update={
                "ended": time.time() if ended is None else ended,
                "outcome": outcome if self._redact is None else redacted(outcome, self._redact),
                "step_count": self.steps,
                "steps_bytes": self._size,
                "steps_sha256": self._hash.hexdigest(),
            }
        )
        with full_disk_named(self.folder):
            self._mend()
            if self._sync != "never":
                for path in self._unsynced:
                    sync_path(path)
                for folder in {path.parent for path in self._unsynced}:
                    sync_path(folder)
                os.fsync(descriptor)
            write_whole(self.folder / META, encode(info, schema=SCHEMA), self._sync != "never")
        self.info = info
        self.close()
        return info

    def close(self) -> None:
        """Let go of the episode, finished or not."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _open(self) -> int:
        if self._descriptor is None:
            raise EpisodeError(f"the episode {self.info.id} is closed")
        return self._descriptor

    def _mend(self) -> None:
        """Cut off what a failed write may have left behind the last whole line."""
        if self._torn:
            os.ftruncate(self._open(), self._size)
            self._torn = False

    def _with_image(self, step: Step, image: bytes | None) -> Step:
        seen = step.observation
        if image is None:
            if seen.image is not None and seen.image not in self._images:
                raise EpisodeError(f"step {step.index} names the image {seen.image}, which the store does not have")
            digest = seen.image
        else:
            size = png_size(image)
            if size != (seen.width, seen.height):
                raise EpisodeError(
                    f"the screenshot of step {step.index} is {size[0]}×{size[1]}, "
                    f"and its observation says {seen.width}×{seen.height}"
                )
            digest = self._images.put(image, self._sync == "step")
        if digest is None:
            return step
        self._unsynced.add(self._images.path_of(digest))
        return step.model_copy(update={"observation": seen.model_copy(update={"image": digest})})
