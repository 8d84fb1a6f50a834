"""What a client gets of its turns: an answer in one piece, or server-sent events as they come."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from holotron.engine.requests import Event, FinishEvent, TokenEvent
from holotron.server.errors import ApiError, as_api_error
from holotron.server.running import RunningAnswers
from holotron.server.schemas import Sampling
from holotron.server.state import ServerState
from holotron.server.streaming import DONE, EventStream, sse, unless_gone
from holotron.server.turns import ActiveTurn, Choice

Asked = TypeVar("Asked", bound=Sampling)


class TurnAnswer(ABC, Generic[Asked]):
    """The turns of a request, one for each of its prompts, and how they are told."""

    prefix: ClassVar[str]  # of the answer's id
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]
    first_piece: ClassVar[dict[str, Any] | None] = None  # what a stream tells of each choice before it has begun
    copies: int = 1  # turns that each prompt has

    def __init__(self, state: ServerState, request: Asked, turns: list[ActiveTurn]) -> None:
        self.request = request
        self.turns = turns
        self.choices = [choice for turn in turns for choice in turn.choices]
        for index, choice in enumerate(self.choices):
            choice.index = index
        self._state = state
        self.forget: Callable[[], None] = lambda: None  # among the answers that are under way
        self.fields: Mapping[str, str] = {}  # what the client calls the fields of the request, where that differs
        self.noticed: dict[str, Any] = {}  # for the log; the request's own once there is one
        self.head: dict[str, Any] = {
            "id": f"{self.prefix}-{uuid4().hex}",
            "created": int(time.time()),
            "model": turns[0].model,
        }

    @abstractmethod
    def body(self, choice: Choice) -> dict[str, Any]:
        """What a finished choice said."""

    @abstractmethod
    def piece(self, choice: Choice, event: Event) -> dict[str, Any] | None:
        """What a choice said since the last piece; None where there is nothing to tell yet."""

    @abstractmethod
    def logprobs(self, choice: Choice, start: int) -> dict[str, Any] | None:
        """Log-probabilities from that token on, if they were asked for."""

    def finish_reason(self, choice: Choice) -> str:
        return choice.finish or "stop"

    def extras(self) -> dict[str, Any]:
        """What this server tells beside what OpenAI's does."""
        epoch = max(choice.epoch for choice in self.choices)
        extras: dict[str, Any] = {"weight_version": self._state.client.version_of(epoch)}
        if self.request.session_id is not None:
            extras["session_id"] = self.request.session_id
        return extras | self.prompt()

    async def whole(self) -> dict[str, Any]:
        try:
            await asyncio.gather(*(turn.collect() for turn in self.turns))
        finally:
            self.close()
        return self.result()

    async def stream(self) -> AsyncGenerator[bytes, None]:
        try:
            for chunk in self.opening():
                yield chunk
            for turn in self.turns:  # all of them run; they are told one after another
                async for choice, event in turn.events():
                    for chunk in self.chunks(choice, event):
                        yield chunk
            for chunk in self.closing():
                yield chunk
        except Exception as error:
            found = as_api_error(error).renamed(self.fields)
            self.noticed["code"] = found.code
            for chunk in self.broken(found):
                yield chunk
        finally:
            self.close()

    # ---- OpenAI's completions; other dialects tell the same turns otherwise ----

    def result(self) -> dict[str, Any]:
        """The whole answer, once every choice is finished."""
        choices = []
        for choice in self.choices:
            told = self._told(choice, self.body(choice), 0, self.finish_reason(choice))
            if choice.stop is not None:
                told["stop_reason"] = choice.stop
            choices.append(told)
        return self.head | {"object": self.whole_object, "choices": choices, "usage": self.usage()} | self.extras()

    def opening(self) -> Iterator[bytes]:
        """What a stream tells before anything was generated."""
        for choice in self.choices if self.first_piece is not None else ():
            yield self._chunk([self._told(choice, self.first_piece or {}, 0, None)], self.prompt())

    def chunks(self, choice: Choice, event: Event) -> Iterator[bytes]:
        """What an event of a choice adds to a stream."""
        if (piece := self.piece(choice, event)) is not None:
            new = len(event.token_ids) if isinstance(event, TokenEvent) else 0
            finish = self.finish_reason(choice) if isinstance(event, FinishEvent) else None
            yield self._chunk([self._told(choice, piece, len(choice.token_ids) - new, finish)])

    def closing(self) -> Iterator[bytes]:
        """What a stream tells at its end."""
        if self.request.stream_options and self.request.stream_options.include_usage:
            yield self._chunk([], {"usage": self.usage()} | self.extras())
        yield DONE

    def broken(self, error: ApiError) -> Iterator[bytes]:
        """What a stream tells where it ends with an error."""
        yield sse(error.body())
        yield DONE

    def prompt(self) -> dict[str, Any]:
        """The tokens that were read, if they were asked for, where one prompt stands for the whole answer."""
        return {}

    def _told(self, choice: Choice, said: dict[str, Any], start: int, finish: str | None) -> dict[str, Any]:
        told = {"index": choice.index, **said, "finish_reason": finish, "logprobs": self.logprobs(choice, start)}
        if self.request.return_token_ids:
            told |= choice.tokens(self._state.client.version_of, start)
        return told

    def _chunk(self, choices: list[dict[str, Any]], more: dict[str, Any] | None = None) -> bytes:
        options = self.request.stream_options
        is_told = options and options.include_usage and options.continuous_usage_stats
        so_far = {"usage": self.usage()} if is_told else {}
        return sse(self.head | {"object": self.chunk_object, "choices": choices} | so_far | (more or {}))

    def usage(self) -> dict[str, Any]:
        prompts = self.turns[:: self.copies]
        prompt = sum(turn.prompt_tokens for turn in prompts)
        completion = sum(turn.completion_tokens for turn in self.turns)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(turn.cached_tokens for turn in prompts)},
        }

    def close(self) -> None:
        """End every turn, if it has not ended yet."""
        self.forget()
        for turn in self.turns:
            turn.close()

    def abort(self) -> None:
        """Have every turn end where it is; the answer says so."""
        for turn in self.turns:
            turn.generation.abort()


async def respond(http: Request, beginning: Coroutine[Any, Any, TurnAnswer[Any]]) -> Response:
    """From a request to its answer, whole or as events; the turns end if the client leaves."""
    answer = await unless_gone(http.receive, beginning)
    http.state.turn = answer.turns[0]
    answer.noticed = http.scope["state"]
    running: RunningAnswers = http.app.state.server.running
    running.add(http.state.caller, (http.state.request_id, answer.head["id"]), answer)
    if answer.request.stream:
        return EventStream(answer.stream(), answer.close)
    return JSONResponse(await unless_gone(http.receive, answer.whole()))
