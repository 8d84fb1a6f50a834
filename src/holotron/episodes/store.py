"""A folder of episodes that many writers fill at once and any version reads.

episodes/<id>/meta.json     task, policy, environment, outcome; replaced whole at the end
episodes/<id>/steps.jsonl   one line per step, only ever appended to
images/ab/abcdef….png       screenshots by the SHA-256 of their bytes
abandoned/<id>.<mark>/      earlier attempts that did not finish or failed for no fault of the policy
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from holotron.env.task import Task, TaskKey
from holotron.episodes.errors import AlreadyFinished, BeingWritten, Damaged, EpisodeError
from holotron.episodes.files import full_disk_named, lock
from holotron.episodes.images import ImageFolder
from holotron.episodes.reading import STEPS, read_info, read_steps
from holotron.episodes.record import EnvironmentInfo, Episode, EpisodeInfo, PolicyInfo, Step
from holotron.episodes.redaction import Redact, SomeNoun, redacted
from holotron.episodes.writer import EpisodeWriter, Sync

log = logging.getLogger(__name__)


class EpisodeStore:
    """Episodes in a folder. `redact` sees every text before it is written; images it does not see.

    `sync` says what survives a loss of power: every step, every finished episode, or what the system has written. A
    killed process loses nothing with any of them.
    """

    def __init__(self, folder: str | Path, *, redact: Redact | None = None, sync: Sync = "episode") -> None:
        self.folder = Path(folder)
        self.images = ImageFolder(self.folder / "images")
        self._episodes = self.folder / "episodes"
        self._abandoned = self.folder / "abandoned"
        self._redact = redact
        self._sync: Sync = sync

    # ---- writing ----

    def begin(
        self,
        task: Task,
        policy: PolicyInfo,
        environment: EnvironmentInfo,
        *,
        episode_id: str | None = None,
        started: float | None = None,
    ) -> EpisodeWriter:
        """Begin the episode of a task, of which there is one per task, seed and sample.

        An attempt that did not finish, or that the infrastructure failed, is put aside first. For a task that may be
        done over and over, such as one typed by a person, pass new_id().
        """
        task, told = self._clean(task), task
        info = EpisodeInfo(
            id=id_of(task.key) if episode_id is None else episode_id,
            task=task,
            policy=self._clean(policy),
            environment=self._clean(environment),
            started=time.time() if started is None else started,
        )
        folder = self._episodes / info.id
        if folder.exists():
            self._put_aside(folder)
        writer = EpisodeWriter.create(folder, info, self.images, self._redact, self._sync)
        writer.hides_prompts = task != told
        return writer

    def put_aside(self, episode_id: str) -> None:
        """Take an episode out, finished or not, if it is there; its files stay in `abandoned`."""
        if (folder := self._episodes / episode_id).exists():
            self._put_aside(folder, finished=True)

    def _put_aside(self, folder: Path, finished: bool = False) -> None:
        try:
            # Only the holder of the lock may move the folder; damage may have taken the file to lock.
            (folder / STEPS).touch()
            descriptor = lock(folder / STEPS)
        except FileNotFoundError:
            return  # another writer moved it
        if descriptor is None:
            raise BeingWritten(f"the episode {folder.name} is being written by another writer")
        try:
            with suppress(Damaged):
                info = read_info(folder)
                if info.counts and not finished:
                    raise AlreadyFinished(f"the episode {info.id} is finished; list_episodes shows its outcome")
            with full_disk_named(self._abandoned):
                self._abandoned.mkdir(parents=True, exist_ok=True)
                folder.rename(self._abandoned / f"{folder.name}.{uuid.uuid4().hex[:8]}")
        finally:
            os.close(descriptor)

    def _clean(self, noun: SomeNoun) -> SomeNoun:
        return noun if self._redact is None else redacted(noun, self._redact)

    # ---- reading ----

    def list_episodes(
        self,
        *,
        benchmark: str | None = None,
        finished: bool | None = None,
        on_damage: Callable[[Damaged], None] | None = None,
    ) -> list[EpisodeInfo]:
        """The episodes, in order of their ids, without their steps. Damaged ones are told about and left out."""
        found = []
        for folder in self._folders():
            try:
                info = read_info(folder)
            except Damaged as error:
                if not folder.is_dir():
                    continue  # a stray file, or put aside since the names were listed
                if on_damage is None:
                    log.warning("an episode is left out: %s", error)
                else:
                    on_damage(error)
                continue
            if benchmark in (None, info.task.benchmark) and finished in (None, info.finished):
                found.append(info)
        return found

    def info(self, episode_id: str) -> EpisodeInfo:
        """One episode without its steps."""
        return read_info(self._folder_of(episode_id))

    def steps(self, episode_id: str, *, salvage: bool = False) -> Iterator[Step]:
        """The steps of one episode, one by one; to salvage is to take those before the damage, if there is any."""
        folder = self._folder_of(episode_id)
        return read_steps(folder, read_info(folder), salvage)

    def read(self, episode_id: str) -> Episode:
        """One episode. If it is unfinished, as far as it got."""
        folder = self._folder_of(episode_id)
        info = read_info(folder)
        return Episode.of(info, read_steps(folder, info))

    def image(self, digest: str) -> bytes:
        """The screenshot of that name, as PNG."""
        return self.images.get(digest)

    def completed_keys(self) -> set[TaskKey]:
        """What a rollout need not do again: tasks finished with an outcome that says something about the policy."""
        return {info.task.key for info in self.list_episodes(finished=True) if info.counts}

    def key(self, task: Task) -> TaskKey:
        """The key under which completed_keys has a task: of its texts as they are written."""
        return self._clean(task).key

    def is_being_written(self, episode_id: str) -> bool:
        """Whether a writer has the episode open, here or in another process."""
        try:
            descriptor = lock(self._folder_of(episode_id) / STEPS)
        except FileNotFoundError:
            return False
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    # ---- care ----

    def check(self) -> list[str]:
        """Everything that is damaged or missing, one line each."""
        problems: list[str] = []
        for info in self.list_episodes(on_damage=lambda error: problems.append(str(error))):
            try:
                for step in self.steps(info.id):
                    if step.observation.image is not None:
                        self.image(step.observation.image)
            except Damaged as error:
                problems.append(f"{info.id}: {error}")
        return problems

    def _folders(self) -> list[Path]:
        try:
            with os.scandir(self._episodes) as entries:
                names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
        except FileNotFoundError:
            return []
        return [self._episodes / name for name in names]

    def _folder_of(self, episode_id: str) -> Path:
        if not _ID.fullmatch(episode_id) or not (self._episodes / episode_id).is_dir():
            raise EpisodeError(f"there is no episode {episode_id[:140]!r} in {self.folder}")
        return self._episodes / episode_id


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def id_of(key: TaskKey) -> str:
    """The id of the one episode of a task: readable, and different for different keys."""
    words = re.sub(r"[^A-Za-z0-9]+", "-", key.task).strip("-")[:60].strip("-") or "task"
    seed = "" if key.seed is None else f".{key.seed}"
    digest = hashlib.sha256(repr(tuple(key)).encode()).hexdigest()[:12]
    return f"{words}{seed[:24]}.{key.sample}.{digest}".replace(".-", ".m")


def new_id() -> str:
    """An id that no other episode has."""
    return f"run.{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.{uuid.uuid4().hex[:12]}"
