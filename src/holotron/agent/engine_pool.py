"""One policy behind several of our servers, whose weights change: who asks hears only what a run's own weights said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple, TypeVar

from holotron.agent.chat import ChatOptions, Message, ModelUnavailable, Reply
from holotron.agent.endpoint import EndpointChat, EndpointModel, EndpointRefused, message_body
from holotron.agent.shared_prompts import SharedPrompts

T = TypeVar("T")
LOOK = 0.1  # seconds between two looks for a server that is ready
ATTEMPTS = 4  # at a request, in 3.5 s: then it is another server's turn


@dataclass(eq=False)
class PooledEngine:
    """One server. ready: it holds the weights of now."""

    url: str
    ready: bool = False


class _Place(NamedTuple):
    """Where a conversation is, and the prompt that its session has read and not answered."""

    engine: PooledEngine
    session: str | None = None
    prompt_ids: tuple[int, ...] | None = None


class EnginePool:
    """A SeededModel. Who opens a conversation waits until a server is ready; one that fails is ready no longer.

    run: what the versions of its weights begin with, such as RUN/7, of which replies have the number; others, which a
    server has that was started again, are refused. group: so many conversations begin with the same prompt, which is
    read once, on one server, and forked there. ttl: seconds after which a session that nobody uses is forgotten. name:
    of the model or adapter there, told before anybody asks.
    """

    name = ""

    def __init__(
        self, urls: Sequence[str], run: str, key: str | None, style: ChatOptions, on_update: str, group: int, ttl: float
    ) -> None:
        self.engines = [PooledEngine(url) for url in urls]
        self.updates = 0  # of what servers hold
        self.run, self.style, self.key = run, style, key
        self._wanted, self._group = {"on_update": on_update, "ttl": ttl}, group
        self._turns = count()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, seed: int | None = None) -> PooledChat:
        if self._loop is not asyncio.get_running_loop():  # to which connections belong
            self._loop = asyncio.get_running_loop()
            self._shared = SharedPrompts[_Place](self.close)
            self._clients = {
                each.url: EndpointModel(each.url, self.name, self.key, self.style, sessions=True, attempts=ATTEMPTS)
                for each in self.engines
            }
        while not any(engine.ready for engine in self.engines):
            await asyncio.sleep(LOOK)
        return PooledChat(self, seed)

    async def open_seeded(self, seed: int) -> PooledChat:
        """A conversation whose draws follow from the seed, on whatever server it is."""
        return await self.open(seed)

    async def begin(self, new: tuple[Message, ...]) -> _Place:
        """Where a conversation that begins so goes on."""
        if self.style.windowed:
            return _Place(self._next())
        return await self._shared.take(new, lambda: self._read(new), self.updates)

    def chat(self, place: _Place, seed: int | None = None) -> EndpointChat:
        return EndpointChat(self._clients[place.engine.url], place.session, seed)

    async def heard(self, engine: PooledEngine, asked: Awaitable[T]) -> T:
        """What a server answers; ModelUnavailable where it does not, or refuses. One that is away is lost."""
        try:
            return await asked
        except EndpointRefused as error:
            if error.param == "model":  # it was started again, without the adapter
                self.lose(engine)
            raise ModelUnavailable(f"{engine.url}: {error}") from error
        except ModelUnavailable as error:
            if not isinstance(error.__cause__, EndpointRefused):  # else it knows no such session any more
                self.lose(engine)
            raise

    def number(self, engine: PooledEngine, version: object) -> int:
        """Which of the run's weights these are; ModelUnavailable where they are none of them."""
        run, _, number = str(version).partition("/")
        if run != self.run:
            self.lose(engine)
            raise ModelUnavailable(f"{engine.url} answers with the weights {version!r}, which this run did not send")
        return int(number)

    def lose(self, engine: PooledEngine) -> None:
        """Ask it no more, and take nothing that it had read."""
        self.updates += engine.ready
        engine.ready = False

    async def close(self, place: _Place) -> None:
        if place.engine.ready:  # one that is away has forgotten its sessions, or will soon
            await self.chat(place).close()

    def _next(self) -> PooledEngine:
        ready = [engine for engine in self.engines if engine.ready]
        if not ready:
            raise ModelUnavailable("no engine is ready")
        return ready[next(self._turns) % len(ready)]

    async def _read(self, new: Sequence[Message]) -> list[_Place]:
        """Sessions that have read the prompt of a group: with one token of an answer, which is taken back."""
        engine = self._next()

        async def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
            return await self.heard(engine, self._clients[engine.url].request("POST", f"/sessions{path}", body))

        session = str((await ask("", self._wanted | {"model": self.name}))["id"])
        body: dict[str, Any] = {"messages": [message_body(said) for said in new], "max_tokens": 1, "temperature": 0.0}
        body |= {"return_token_ids": True, "chat_template_kwargs": dict(self.style.template)}
        answer = await ask(f"/{session}/turns", body)
        self.number(engine, answer["weight_version"])
        await ask(f"/{session}/rollback", {"keep_prompt": True})
        forks = (await ask(f"/{session}/fork", {"n": self._group - 1}))["data"]
        prompt_ids = tuple(answer["prompt_token_ids"])
        return [_Place(engine, each, prompt_ids) for each in (session, *(str(fork["id"]) for fork in forks))]


class PooledChat:
    """One conversation, on one server from its first question on."""

    def __init__(self, pool: EnginePool, seed: int | None) -> None:
        self._pool, self._seed = pool, seed
        self._place: _Place | None = None

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        pool, prompt_ids = self._pool, None
        if self._place is None:
            self._place = await pool.begin(tuple(new))
            self._chat, prompt_ids = pool.chat(self._place, self._seed), self._place.prompt_ids
        engine = self._place.engine
        reply = await pool.heard(engine, self._chat.say(new if prompt_ids is None else (), schema))
        versions = [pool.number(engine, each) for each in reply.weight_versions or (reply.weight_version,)]
        several = tuple(versions) if len(versions) > 1 else None
        prompt_ids = prompt_ids or reply.prompt_ids
        return replace(reply, prompt_ids=prompt_ids, weight_version=versions[-1], weight_versions=several)

    async def close(self) -> None:
        if self._place is not None:
            await self._pool.close(self._place)
