"""One model for many processes: the parent holds it, and worker processes talk to it over a private socket.

The two ends send each other pickles. That is safe only between a process and the workers it started itself, so the
socket lies in a folder that no other user can enter. It is not a server: for others there is `holotron serve`.
"""

from __future__ import annotations

import asyncio
import json
import pickle
import struct
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from holotron.agent.chat import Chat, ChatModel, Message, ModelUnavailable, OfSchema, Reply, SeededModel
from holotron.env.workers import portable
from holotron.model.errors import ImageError
from holotron.model.image import DecodedFile

MAX_FRAME_BYTES = 256 * 2**20
_LENGTH = struct.Struct("<I")
READ_AHEAD = 2**20

Answerer = Callable[..., Awaitable[Any]]


class ModelHost:
    """Serves a model to the processes that get a handle, while the context is open. Many ask at once.

    Conversations of a process that ends, however that came, are closed.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._folder = tempfile.TemporaryDirectory(prefix="holotron-")  # made with mode 0700
        self._path = str(Path(self._folder.name) / "model")
        self._ready: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop
        self._closing: asyncio.Event
        self._clients: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="model-host", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def handle(self) -> ModelHandle:
        """What a worker process is given: it can be pickled, and used any number of times."""
        return ModelHandle(self._path, self._model.name)

    def close(self) -> None:
        """End all conversations. Who is still asking hears ModelUnavailable."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._folder.cleanup()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        async with self.listening():
            self._ready.set_result(None)
            await self._closing.wait()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Inside, whoever connects is welcomed."""
        server = await asyncio.start_unix_server(self.welcome, self._path, limit=READ_AHEAD)
        yield
        server.close()

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)
        # A task that ends cancelled is an error to the stream server: closing is no error.
        with suppress(asyncio.CancelledError):
            await _Client(self._model, reader, writer).serve()


class _Client:
    """The host's end of one worker's connection: its conversations, and what it has asked."""

    def __init__(self, model: ChatModel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._model = model
        self._reader = reader
        self._writer = writer
        self._chats: dict[int, asyncio.Future[Chat]] = {}
        self._schemas: dict[int, Mapping[str, Any]] = {}
        self._asked: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        answers: dict[str, Answerer] = {"open": self._open, "say": self._say, "close": self._close}
        try:
            while True:
                kind, request, *arguments = await _read(self._reader)
                if kind == "cancel":
                    if request in self._asked:
                        self._asked[request].cancel()
                elif kind == "schema":
                    (self._schemas[request],) = arguments
                else:
                    task = asyncio.create_task(self._answer(request, answers[kind], arguments))
                    self._asked[request] = task
                    task.add_done_callback(partial(self._forget, request))
        except (asyncio.IncompleteReadError, OSError):  # the worker has closed its end, or is gone
            pass
        except Exception as error:
            problem = f"the connection was closed after a frame that is none: {type(error).__name__}: {error!s:.200}"
            _write(self._writer, (None, ModelUnavailable(problem)))
        finally:
            await self._leave()

    def _forget(self, request: int, _: asyncio.Task[None]) -> None:
        del self._asked[request]

    async def _leave(self) -> None:
        self._writer.close()
        running = list(self._asked.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.gather(*(self._close(number) for number in list(self._chats)), return_exceptions=True)

    async def _answer(self, request: int, answer: Answerer, arguments: list[Any]) -> None:
        try:
            value = await answer(*arguments)
        except Exception as error:
            value = portable(error, ModelUnavailable)
        if not self._writer.is_closing():
            _write(self._writer, (request, value))

    async def _open(self, number: int, seed: int | None = None) -> None:
        if seed is None:
            opening = self._model.open()
        elif isinstance(self._model, SeededModel):
            opening = self._model.open_seeded(seed)
        else:
            raise ValueError(f"{self._model.name} takes no seed")
        # Not cancelled with the request, so that no conversation is opened that nobody closes.
        self._chats[number] = asyncio.ensure_future(opening)
        await asyncio.shield(self._chats[number])

    async def _say(self, number: int, new: Sequence[Message], schema: int | None) -> Reply:
        if number not in self._chats:
            raise ModelUnavailable("the conversation is closed; open another one")
        chat = self._chats[number].result()
        return await chat.say(new, None if schema is None else self._schemas[schema])

    async def _close(self, number: int) -> None:
        opening = self._chats.pop(number, None)
        if opening is not None:
            await asyncio.shield(_end(opening))


@dataclass(frozen=True)
class ModelHandle:
    """Where a worker process finds its parent's model."""

    path: str
    name: str

    async def connect(self) -> HostedModel:
        """The model, for the event loop that runs here. Close it, or use it as an async context manager."""
        try:
            reader, writer = await asyncio.open_unix_connection(self.path, limit=READ_AHEAD)
        except OSError as error:
            raise ModelUnavailable(f"{self.name} is not served by the parent process any more: {error}") from error
        return HostedModel(self.name, reader, writer)


class HostedModel:
    """A model in the parent process. All its conversations share one connection.

    decode: screenshots bring their pixels along, which is much more to send and less to do for the parent.
    """

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, decode: bool = True
    ) -> None:
        self.name, self.decode = name, decode
        self._writer = writer
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._schemas: dict[str, int] = {}
        self.number_of = OfSchema(self._number_of)  # of a schema on this connection
        self._lost: ModelUnavailable | None = None
        self._listening = asyncio.create_task(self._listen(reader))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    async def open(self) -> HostedChat:
        return await self._opened()

    async def open_seeded(self, seed: int) -> HostedChat:
        return await self._opened(seed)

    async def _opened(self, *seed: int) -> HostedChat:
        chat = HostedChat(self, next(self._numbers))
        try:
            await self.ask("open", chat.number, *seed)
        except asyncio.CancelledError:
            self.tell("close", next(self._numbers), chat.number)
            raise
        return chat

    async def close(self) -> None:
        """Leave; conversations that are still open are closed by the host."""
        self._listening.cancel()
        await asyncio.wait([self._listening])
        self._writer.close()

    async def ask(self, kind: str, *arguments: Any) -> Any:
        """Send a request and wait for its answer."""
        if self._lost is not None:
            raise self._lost
        request = next(self._numbers)
        answer = self._waiting[request] = asyncio.get_running_loop().create_future()
        try:
            self.tell(kind, request, *arguments)
            value = await answer
        except asyncio.CancelledError:
            self.tell("cancel", request)
            raise
        finally:
            del self._waiting[request]
        if isinstance(value, Exception):
            raise value
        return value

    def tell(self, *message: Any) -> None:
        """Send something that nothing waits for."""
        if self._lost is None:
            _write(self._writer, message)

    def _number_of(self, schema: Mapping[str, Any]) -> int:
        """The host is told the schema itself only once."""
        key = json.dumps(schema)
        if key not in self._schemas:
            self._schemas[key] = next(self._numbers)
            self.tell("schema", self._schemas[key], schema)
        return self._schemas[key]

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        problem = ModelUnavailable(f"{self.name} is gone: the parent process closed the connection")
        try:
            while True:
                request, value = await _read(reader)
                if request is None:
                    problem = value
                elif request in self._waiting and not self._waiting[request].done():
                    self._waiting[request].set_result(value)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._lost = problem
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_result(problem)


class HostedChat:
    """One conversation with a model in the parent process."""

    def __init__(self, model: HostedModel, number: int) -> None:
        self._model = model
        self.number = number

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        wanted = None if schema is None else self._model.number_of(schema)
        told = list(new)
        if self._model.decode:  # there are many workers and one parent, whose threads take the engine's time
            told = await asyncio.to_thread(lambda: [_decoded(message) for message in new])
        return await self._model.ask("say", self.number, told, wanted)

    async def close(self) -> None:
        with suppress(ModelUnavailable):  # a host that is gone has closed everything
            await self._model.ask("close", self.number)


def _decoded(message: Message) -> Message:
    """With the pixels of its screenshot; one that is no image is for the model to refuse."""
    if message.image is None:
        return message
    with suppress(ImageError):
        return replace(message, image=DecodedFile(message.image))
    return message


async def _end(opening: asyncio.Future[Chat]) -> None:
    chat = await opening
    await chat.close()


# ---- frames: a length, and a pickle of that many bytes ----


async def _read(reader: asyncio.StreamReader) -> Any:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {length:,} bytes is larger than {MAX_FRAME_BYTES:,}")
    return pickle.loads(await reader.readexactly(length))


def _write(writer: asyncio.StreamWriter, value: Any) -> None:
    frame = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    if len(frame) > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {len(frame):,} bytes is larger than the {MAX_FRAME_BYTES:,} that can be sent")
    writer.write(_LENGTH.pack(len(frame)) + frame)
