"""First prompts that several conversations begin with: computed once, and forked for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holotron.engine.requests import PlacedImages
from holotron.engine.session import Session

Key = tuple[tuple[int, ...], tuple[tuple[int, object], ...]]


class SharedPrompts:
    """Sessions that hold a prompt already: the first that asks for it has it computed for `group` of them.

    Prompts are the same if their tokens and their images are. What was computed with other weights is closed.
    """

    def __init__(self, open_session: Callable[[], Session], group: int) -> None:
        self._open_session, self._group = open_session, group
        self._ready: dict[Key, asyncio.Future[list[Session]]] = {}
        self._epoch = 0

    async def take(self, token_ids: Sequence[int], images: PlacedImages, epoch: int) -> Session:
        """A session of one's own, to generate in and to close."""
        if epoch != self._epoch:
            self._epoch = epoch
            await self.clear()
        key = tuple(token_ids), tuple((place, prepared.key) for place, prepared in images)
        if key not in self._ready:
            self._ready[key] = asyncio.ensure_future(asyncio.to_thread(self._forked, token_ids, images))
        # Not cancelled with the one that asks: others wait for it, too.
        forked, sessions = self._ready[key], await asyncio.shield(self._ready[key])
        if not sessions:  # as many as a group has asked meanwhile
            return await self.take(token_ids, images, epoch)
        session = sessions.pop(0)
        if not sessions and self._ready.get(key) is forked:
            del self._ready[key]
        return session

    async def clear(self) -> None:
        """Close what was not taken."""
        left, self._ready = list(self._ready.values()), {}
        for sessions in await asyncio.gather(*left, return_exceptions=True):
            if not isinstance(sessions, BaseException):
                await asyncio.to_thread(_close_all, sessions)

    def _forked(self, token_ids: Sequence[int], images: PlacedImages) -> list[Session]:
        session = self._open_session()
        session.append(token_ids, images)
        return [session, *session.fork(self._group - 1)]


def _close_all(sessions: list[Session]) -> None:
    while sessions:
        sessions.pop().close()
