"""One turn, taken by a replica, and by another from the beginning if that one dies: its client only waits longer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from holotron.engine.requests import FinishEvent, PromptEvent, TokenEvent
from holotron.engine.session import Generation
from holotron.scale.directory import Place, Replica
from holotron.scale.journal import KeptImage
from holotron.server import messages as m
from holotron.server.engine_client import EngineDown, EngineRefused, PendingGeneration

if TYPE_CHECKING:
    from holotron.scale.router import ReplicaRouter

MOST_TRIES = 8  # replicas that may die under one request


class RoutedTurn:
    """Replies go to `replies`, each once. What its client does not read any more is still noted in the journal."""

    def __init__(self, router: ReplicaRouter, turn: m.Generate, place: Place | None) -> None:
        self.replies: asyncio.Queue[Any] = asyncio.Queue()
        self._router = router
        self._turn = turn
        self._place = place
        self._told: list[list[Any]] = [[] for _ in range(turn.choices)]  # events that the client has
        self._images: list[asyncio.Future[KeptImage]] = []
        self._running: PendingGeneration | None = None
        self._started = self._aborted = self._left = False
        self.task = asyncio.create_task(self._run())

    def leave(self) -> None:
        """Its client is gone."""
        self._left = True
        if self._started:
            self.abort()  # and read to its end: the journal must know what was said
        else:
            self.task.cancel()

    def abort(self) -> None:
        self._aborted = True
        if self._running is not None:
            self._running.abort()
        elif not self._started:  # it waits for a replica
            self.task.cancel()
            self.replies.put_nowait(EngineRefused("aborted", "the turn was ended before it had begun"))

    async def _run(self) -> None:
        try:
            for _ in range(MOST_TRIES):
                if await self._try():
                    return
            raise EngineDown(f"{MOST_TRIES} replicas in a row died under this turn; ask again")
        except Exception as error:  # whatever it is: a client must not wait for ever
            self.replies.put_nowait(error)

    async def _try(self) -> bool:
        """Have the turn taken; False if its replica died."""
        async with self._router.replica_for(self._turn, self._place) as replica:
            try:
                with replica.working():
                    return await self._take(replica)
            except EngineDown:
                self._router.check_running()  # not when the server stops
                return False
            finally:
                if self._running is not None:
                    self._running.cancel()
                    self._running = None

    async def _take(self, replica: Replica) -> bool:
        self._running = replica.client.generate(self._turn)
        start = await self._running.started()
        if not self._started:
            self._started = True
            self.replies.put_nowait(m.TurnEvent(self._turn.id, 0, start))
            if self._place is not None:  # they are written while the engine works
                kept = (self._router.keep_image(data) for _, data in self._turn.images)
                self._images = [asyncio.ensure_future(each) for each in kept]
        if self._aborted:
            self._running.abort()
        seen = [0] * self._turn.choices
        said = Generation()  # in the session itself: other choices are forks of it
        finished = 0
        async for choice, event in self._running:
            if choice == 0 and not isinstance(event, PromptEvent):
                said.add(event)
            finished += isinstance(event, FinishEvent)
            if finished == self._turn.choices:  # before the client knows: what it asks for next builds on it
                await self._journal(said)
            self._tell(choice, event, seen)
        return True

    def _tell(self, choice: int, event: TokenEvent | FinishEvent | PromptEvent, seen: list[int]) -> None:
        """Pass an event on, unless the client has it from a replica that died."""
        told, number = self._told[choice], seen[choice]
        seen[choice] += 1
        if number < len(told):
            if isinstance(event, TokenEvent) and event.token_ids != told[number]:
                raise EngineRefused("failed", "the replica died, and another one says it differently; ask again")
            return
        told.append(event.token_ids if isinstance(event, TokenEvent) else None)
        self.replies.put_nowait(m.TurnEvent(self._turn.id, choice, event))

    async def _journal(self, said: Generation) -> None:
        if self._place is None:
            return
        kept = await asyncio.gather(*self._images)
        images = [(offset, image) for (offset, _), image in zip(self._turn.images, kept, strict=True)]
        note = self._turn.note
        if note is not None:
            note = note | {"answer": [said.text, said.ended_with], "left": self._left}
        self._place.entry.add_turn(self._turn.token_ids, images, said.token_ids, note)
        self._router.note_turn(self._place)
