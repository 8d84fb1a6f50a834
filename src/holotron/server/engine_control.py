"""What an operator or a trainer does to the engine: pause it, give it other weights, free its memory for a while."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from holotron.engine.weight_spec import GroupAddress, TensorSpec
from holotron.server.engine_service import EngineService
from holotron.server.errors import ApiError


class EngineControl:
    """One engine's. Weights that come over a group in parts are taken together.

    They are taken when the update that was opened for them is finished; without one, when a pause ends; without that,
    at once.
    """

    def __init__(self, client: EngineService) -> None:
        self._client = client
        self.reset()

    def reset(self) -> None:
        """There is another engine, which knows of nothing."""
        self.paused = self.asleep = False
        self._open = False  # an update that is to be finished
        self._staged = 0  # tensors that wait to be taken
        self._failed = False  # a part of those did not come, so that the others are of no use
        self._version: str | None = None  # of those
        self._deferred: asyncio.Task[None] | None = None
        self.packed: int | None = None  # bytes of the buffers in which a vLLM trainer sends them; None: one by one

    async def pause(self, mode: str) -> None:
        """keep, wait, abort or retract: see Worker._pause."""
        await self._client.call("pause", mode)
        self.paused = True

    async def resume(self) -> None:
        """Go on, with the weights that came meanwhile; where those cannot be used, with the old ones and an error."""
        try:
            if self._staged and not self._open:
                await self.commit()
        finally:
            self._failed = False
            await self._client.call("unpause")
            self.paused = False

    async def sleep(self, weights: bool) -> None:
        await self._client.call("sleep", weights=weights)
        self.asleep = True

    async def wake(self) -> None:
        await self._client.call("wake")
        self.asleep = False

    async def flush(self) -> None:
        """Forget what requests without a session left behind for others to go on from."""
        await self._client.call("flush")

    # ---- weights ----

    async def update_weights(
        self, path: str, version: str | None, spool: tempfile.TemporaryDirectory[str] | None = None
    ) -> dict[str, Any]:
        """Weights from a folder or a file; see EngineService.update_weights."""
        epoch = await self._client.update_weights(path, version, spool)
        return {"epoch": epoch, "weight_version": self._client.version_of(epoch)}

    async def join_group(self, address: GroupAddress) -> None:
        await self.discard()
        await self._client.call("join_group", address)

    async def leave_group(self, name: str) -> None:
        await self._client.call("leave_group", name)

    async def open_update(self) -> None:
        """What comes from here on is taken by `finish_update`; what came before it is forgotten."""
        await self.discard()
        self._open = True

    async def finish_update(self, version: str | None) -> None:
        if not self._open:
            raise ApiError(409, "there is no update that could be finished; start one first", code="no_update")
        await self.take(version)

    async def receive(
        self,
        group: str,
        announced: Iterable[tuple[str, str, Sequence[int]]],
        version: str | None = None,
        packed: bool = False,
        most: int | None = None,
        keep: bool = False,
    ) -> None:
        """Wait for tensors that a trainer sends over a group, announced by name, type and shape.

        On an error what came before them is forgotten, and what comes after them is not taken either.
        keep: they are taken by `take`, as if an update had been opened.
        """
        self._open |= keep
        try:
            specs = [TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in announced]
            await self._client.call("receive_weights", group, specs, packed, most)
        except BaseException:
            self._staged, self._failed = 0, self._open or self.paused
            raise
        self._staged += len(specs)
        self._version = version or self._version
        if not (self._open or self.paused):
            await self.commit()

    async def take(self, version: str | None = None) -> None:
        """Let the engine have what came to be kept, if anything did."""
        self._open = False
        try:
            if self._staged:
                await self.commit(version)
        finally:
            self._failed = False

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done after all that was put off before, for trainers that send only once they are answered."""
        self._deferred = asyncio.create_task(_after(self._deferred, work))

    async def settle(self) -> None:
        """Wait for what was put off; the first error of it."""
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            await deferred

    async def commit(self, version: str | None = None) -> None:
        if self._failed:
            await self.discard()
            raise ApiError(
                409, "a part of the weights did not come, so that none is used; send all again", code="partial"
            )
        version, self._version, self._staged = version or self._version, None, 0
        await self._client.commit_weights(version)

    async def discard(self) -> None:
        self._version, self._staged, self._open, self._failed = None, 0, False, False
        await self._client.call("discard_weights")

    async def checksums(self) -> dict[str, str]:
        """SHA-256 of every parameter, by its name here."""
        found: dict[str, str] = await self._client.call("weight_checksums")
        return found


async def _after(before: asyncio.Task[None] | None, work: Coroutine[Any, Any, None]) -> None:
    """Work that is not begun where what comes before it has failed."""
    try:
        if before is not None:
            await before
    except BaseException:
        work.close()
        raise
    await work
