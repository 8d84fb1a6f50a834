"""First prompts that several conversations begin with: computed once, and forked for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

S = TypeVar("S")


class SharedPrompts(Generic[S]):
    """Sessions that hold a prompt already: the first that asks for it has it computed for a whole group.

    close: ends a session that nobody took. What was computed with older weights is closed.
    """

    def __init__(self, close: Callable[[S], Awaitable[None]]) -> None:
        self._close = close
        self._ready: dict[Hashable, asyncio.Future[list[S]]] = {}
        self._epoch = 0

    async def take(self, prompt: Hashable, fork: Callable[[], Awaitable[list[S]]], epoch: int) -> S:
        """A session of one's own, to generate in and to close. fork: makes those of a group."""
        if epoch > self._epoch:
            self._epoch = epoch
            await self.clear()
        if prompt not in self._ready:
            self._ready[prompt] = asyncio.ensure_future(fork())
        forked = self._ready[prompt]
        try:
            # Not cancelled with the one that asks: others wait for it, too.
            sessions = await asyncio.shield(forked)
        except Exception:
            self._forget(prompt, forked)
            raise
        if not sessions:  # as many as a group has asked meanwhile
            return await self.take(prompt, fork, epoch)
        session = sessions.pop(0)
        if not sessions:
            self._forget(prompt, forked)
        return session

    async def clear(self) -> None:
        """Close what was not taken."""
        left, self._ready = list(self._ready.values()), {}
        for sessions in await asyncio.gather(*left, return_exceptions=True):
            if not isinstance(sessions, BaseException):
                unused, sessions[:] = list(sessions), []
                await asyncio.gather(*map(self._close, unused))

    def _forget(self, prompt: Hashable, forked: asyncio.Future[list[S]]) -> None:
        if self._ready.get(prompt) is forked:
            del self._ready[prompt]
