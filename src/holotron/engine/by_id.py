"""Sessions by their ids, for callers that must not wait: each method returns a future, and all that were called during
a step are done together after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from holotron.engine.engine_loop import EngineLoop
from holotron.engine.info import SessionInfo, describe
from holotron.engine.requests import PlacedImages
from holotron.engine.session_state import OnUpdate, Turn

Result = TypeVar("Result")


class Post(Protocol):
    """Has something run on the engine's thread."""

    def __call__(self, function: Callable[[], Result]) -> Future[Result]: ...


class SessionsById:
    """What can be done to a session without a turn. An id that is not known is SessionClosed."""

    def __init__(self, loop: EngineLoop, post: Post) -> None:
        self._loop = loop
        self._post = post

    def open(
        self,
        *,
        on_update: OnUpdate | str = OnUpdate.KEEP,
        keep_images: int | None = None,
        adapter: str | None = None,
    ) -> Future[str]:
        policy = OnUpdate(on_update)
        return self._post(lambda: self._loop.open(on_update=policy, keep_images=keep_images, adapter=adapter).id)

    def rebuild(
        self, session_id: str, images: PlacedImages, token_ids: Sequence[int], turns: Sequence[Turn], **options: Any
    ) -> Future[None]:
        """A session that another engine had, from its tokens; they are computed with its next turn."""

        def rebuild() -> None:
            if session_id in self._loop.sessions:  # a rebuilding whose end was not heard of
                self._loop.close(self._loop.find(session_id))
            policy = OnUpdate(options.pop("on_update", OnUpdate.KEEP))
            session = self._loop.open(session_id, on_update=policy, **options)
            try:
                self._loop.append(session, token_ids, images)
            except BaseException:
                self._loop.close(session)
                raise
            session.turns = list(turns)

        return self._post(rebuild)

    def describe(self, session_id: str) -> Future[SessionInfo]:
        return self._post(lambda: describe(self._loop, self._loop.find(session_id)))

    def fork(self, session_id: str, count: int) -> Future[list[str]]:
        return self._post(lambda: [child.id for child in self._loop.fork(self._loop.find(session_id), count)])

    def fork_after(self, session_id: str, turns: int) -> Future[str]:
        return self._post(lambda: self._loop.fork_after(self._loop.find(session_id), turns).id)

    def rollback(self, session_id: str, turn: int, *, keep_prompt: bool = False) -> Future[None]:
        return self._post(lambda: self._loop.rollback(self._loop.find(session_id), turn, keep_prompt=keep_prompt))

    def park(self, session_id: str) -> Future[None]:
        return self._post(lambda: self._loop.park(self._loop.find(session_id)))

    def resume(self, session_id: str) -> Future[bool]:
        return self._post(lambda: self._loop.resume(self._loop.find(session_id)))

    def close(self, session_id: str) -> Future[None]:
        return self._post(lambda: self._loop.close(self._loop.find(session_id)))
