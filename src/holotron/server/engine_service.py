"""What the routes ask of the engine, whether that is one process or many replicas."""

from __future__ import annotations

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holotron.engine.info import EngineStats
from holotron.server import messages as m
from holotron.server.weight_history import WeightHistory, WeightUpdate, describe_files

if TYPE_CHECKING:
    from holotron.server.engine_client import PendingGeneration
    from holotron.server.sessions import KeptSession


class EngineService(ABC):
    """Sessions and turns somewhere else, and which weights and adapters are served there."""

    def __init__(self, start: m.Start) -> None:
        self.versions: dict[int, str] = {}
        self.weights = WeightHistory()
        self.adapters = dict(start.engine.adapters)  # that are served now: folders by name
        self.adapter_epochs: dict[str, int | None] = {}  # of those whose values a trainer gave
        self._epoch = 0  # of the weights that the engine should have
        self._updating = asyncio.Lock()
        self._start = start
        self._background: set[asyncio.Task[None]] = set()

    ready: m.Ready | None
    restarts: int
    weights_lost: str | None  # why the engine has not the weights that it should have

    @property
    @abstractmethod
    def stats(self) -> EngineStats:
        """What the engine last told about itself."""

    @property
    def by_replica(self) -> Mapping[str, EngineStats]:
        """The same of each replica; nothing where there are none."""
        return {}

    @property
    def session_counts(self) -> Mapping[str, int]:
        """Of replicas: how many sessions were moved, rebuilt and lost."""
        return {}

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """The engine's process."""

    @abstractmethod
    def start(
        self, on_failure: Callable[[str], None] = lambda _: None, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        """Have the engine started. `on_failure` is told why if it never gets its model."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Have a method called where the session is that it is about, and wait for what it returns."""

    @abstractmethod
    def generate(self, turn: m.Generate) -> PendingGeneration:
        """Begin a turn."""

    @abstractmethod
    def usable(self) -> None:
        """EngineDown if there is no engine to talk to, or one with other weights than it should have."""

    @abstractmethod
    def abandon(self, error: Exception) -> None:
        """End everything that waits for the engine, and whatever would from now on, with this error."""

    # ---- what outlives this process: nothing, but with a journal on disk ----

    def kept_sessions(self) -> Iterable[KeptSession]:
        """Sessions that were open when an earlier process ended."""
        return ()

    def remember(self, session_id: str, about: dict[str, Any]) -> None:
        """Keep what is known of a session here."""
        return

    # ---- weights ----

    @property
    def version(self) -> str:
        """What the weights of now are called."""
        return self.version_of(self._epoch)

    @version.setter
    def version(self, name: str) -> None:
        self.versions[self._epoch] = name

    def version_of(self, epoch: int) -> str:
        """What the weights of that epoch are called: the version given with them, or their number."""
        return self.versions.get(epoch, str(epoch))

    async def update_weights(
        self, path: str, version: str | None = None, spool: tempfile.TemporaryDirectory[str] | None = None
    ) -> int:
        """Give the engine other weights, and remember where they are, for an engine that takes its place; their epoch.

        A spool, in which the path is, is kept for as long as that needs; on an error it stays the caller's.
        """
        async with self._updating:
            files, epoch = describe_files(path), self._epoch + 1
            self.versions[epoch] = version or str(epoch)  # known before the first token of theirs
            whole = await self.call("update_weights", path, epoch=epoch)
            return self._took(WeightUpdate(path, epoch, version or str(epoch), files, spool), whole)

    async def commit_weights(self, version: str | None = None) -> int:
        """Let the engine have what trainers sent it; the epoch. An engine that takes its place cannot have it."""
        async with self._updating:
            epoch = self._epoch + 1
            self.versions[epoch] = version or str(epoch)  # known before the first token of theirs
            whole = await self.call("commit_weights", epoch)
            return self._took(WeightUpdate(None, epoch, version or str(epoch), ()), whole)

    def _took(self, update: WeightUpdate, whole: bool) -> int:
        self._epoch = update.epoch
        self.versions[update.epoch] = update.version
        self.weights.add(update, whole)
        if whole:
            self.weights_lost = None
        return update.epoch

    async def set_adapter(self, name: str, folder: str | None, version: str | None = None) -> None:
        """Have an engine, and one in its place, serve an adapter or no longer; version: of the values that it has."""
        async with self._updating:
            if folder is None:
                await self.call("unload_adapter", name)
                del self.adapters[name]
                return
            epoch = None if version is None else self._epoch + 1
            if version is not None:
                self.versions[self._epoch + 1] = version  # known before the first token of theirs
            await self.call("load_adapter", name, folder, epoch)
            self.adapters[name], self.adapter_epochs[name] = folder, epoch
            self._epoch = epoch or self._epoch

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done in the background."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
