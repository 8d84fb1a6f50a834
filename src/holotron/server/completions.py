"""POST /v1/completions: text or token ids in, text and token ids out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from holotron.engine.grammar import Grammar, GrammarError
from holotron.server import messages as m
from holotron.server.answers import ERRORS, TextCompletion
from holotron.server.auth import Caller
from holotron.server.errors import ApiError, as_api_error
from holotron.server.logprobs import completion_logprobs
from holotron.server.schemas import CompletionRequest
from holotron.server.sessions import OpenSession
from holotron.server.state import State, caller_of, state_of
from holotron.server.streaming import DONE, EventStream, event, unless_gone
from holotron.server.turns import ActiveTurn, Choice, begin_turn, sampling_params

router = APIRouter()


@router.post("/v1/completions", responses={200: {"model": TextCompletion}, **ERRORS}, response_model=None)
async def completions(body: CompletionRequest, http: Request, caller: Caller = Depends(caller_of)) -> Response:
    """Go on from a text, or from token ids. In a session they are appended to it as they are."""
    state = state_of(http)
    answer = await unless_gone(http, begin_completion(state, body, caller))
    http.state.turn = answer.turns[0]
    if body.stream:
        return EventStream(answer.stream())
    return JSONResponse(await unless_gone(http, answer.whole()))


class CompletionAnswer:
    """The turns of a request, one for each of its prompts."""

    def __init__(self, state: State, request: CompletionRequest, turns: list[ActiveTurn]) -> None:
        self.id = f"cmpl-{uuid4().hex}"
        self.created = int(time.time())
        self.turns = turns
        self._state = state
        self._request = request
        self._told = [[0] * len(turn.choices) for turn in turns]  # characters, for the offsets of what comes next

    async def whole(self) -> dict[str, Any]:
        try:
            await asyncio.gather(*(turn.collect() for turn in self.turns))
        finally:
            self._close()
        answer = self._head()
        answer["choices"] = [
            self._choice(number, choice) for number, turn in enumerate(self.turns) for choice in turn.choices
        ]
        answer["usage"] = self._usage()
        return answer | self._extras()

    async def stream(self) -> AsyncIterator[bytes]:
        try:
            for number, turn in enumerate(self.turns):  # all of them run; they are told one after another
                async for choice, happening in turn.events():
                    finished = isinstance(happening, m.Finished)
                    new = len(happening.token_ids) if isinstance(happening, m.Tokens) else 0
                    if happening.text or finished or new:
                        yield self._chunk(number, choice, happening.text, new, finished)
            if self._request.stream_options and self._request.stream_options.include_usage:
                yield event(self._head() | {"choices": [], "usage": self._usage()} | self._extras())
            yield DONE
        except Exception as error:
            yield event(as_api_error(error).body())
            yield DONE
        finally:
            self._close()

    def _close(self) -> None:
        for turn in self.turns:
            turn.close()

    def _head(self) -> dict[str, Any]:
        model = self._state.settings.model_name
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": model}

    def _extras(self) -> dict[str, Any]:
        epoch = max(choice.epoch for turn in self.turns for choice in turn.choices)
        extras: dict[str, Any] = {"weight_version": self._state.client.version_of(epoch)}
        if self._request.session_id is not None:
            extras["session_id"] = self._request.session_id
        return extras

    def _usage(self) -> dict[str, Any]:
        parts = [turn.usage() for turn in self.turns]
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        usage = {name: sum(part[name] for part in parts) for name in names}
        cached = sum(turn.cached_tokens for turn in self.turns)
        return usage | {"prompt_tokens_details": {"cached_tokens": cached}}

    def _choice(self, number: int, choice: Choice) -> dict[str, Any]:
        told: dict[str, Any] = {"index": number * self._request.n + choice.index, "text": choice.text}
        told |= {"finish_reason": choice.finish or "stop", "logprobs": None}
        if self._request.logprobs is not None:
            told["logprobs"] = completion_logprobs(self._state.texts.tokenizer, choice.token_ids, choice.logprobs)
        if self._request.return_token_ids:
            told |= choice.tokens(self._state.client.version_of)
            told["prompt_token_ids"] = list(self.turns[number].prompt_ids)
        if choice.stop is not None:
            told["stop_reason"] = choice.stop
        return told

    def _chunk(self, number: int, choice: Choice, text: str, new: int, finished: bool) -> bytes:
        end = len(choice.token_ids)
        told: dict[str, Any] = {"index": number * self._request.n + choice.index, "text": text, "logprobs": None}
        told["finish_reason"] = (choice.finish or "stop") if finished else None
        if self._request.logprobs is not None and new:
            offset = self._told[number][choice.index]
            told["logprobs"] = completion_logprobs(
                self._state.texts.tokenizer, choice.token_ids[end - new :], choice.logprobs[end - new :], offset
            )
            self._told[number][choice.index] = offset + sum(map(len, told["logprobs"]["tokens"]))
        if self._request.return_token_ids:
            told |= choice.tokens(self._state.client.version_of, end - new)
        return event(self._head() | {"choices": [told]})


async def begin_completion(state: State, request: CompletionRequest, caller: Caller) -> CompletionAnswer:
    state.check_model(request.model)
    prompts = _prompts(state, request)
    if request.n * len(prompts) > state.settings.max_choices:
        raise ApiError(
            400,
            f"n: {request.n} answers to {len(prompts)} prompts are more than {state.settings.max_choices}",
            param="n",
        )
    session = None if request.session_id is None else state.sessions.find(request.session_id, caller)
    turns: list[ActiveTurn] = []
    try:
        for token_ids in prompts:
            turns.append(await _begin(state, request, caller, token_ids, session))
    except BaseException:
        for turn in turns:
            turn.close()
        raise
    return CompletionAnswer(state, request, turns)


async def _begin(
    state: State, request: CompletionRequest, caller: Caller, token_ids: tuple[int, ...], session: OpenSession | None
) -> ActiveTurn:
    held = ExitStack()
    try:
        held.enter_context(state.admission.enter(caller, request.n))
        if session is not None:
            await session.rest()
            held.enter_context(session.working())
        sampling = sampling_params(
            request,
            vocabulary=state.texts.config.vocab_size,
            max_tokens=request.max_tokens,
            room=state.max_context - len(token_ids) - (session.tokens if session else 0),
            logprobs=request.logprobs,
            grammar=_grammar(request),
        )
        turn = await begin_turn(
            state.client,
            state.metrics,
            held,
            state.settings.request_seconds,
            token_ids,
            [],
            sampling,
            fields={"invalid": "prompt", "too_long": "prompt", "grammar": "structured_outputs"},
            session=session,
            pool=caller.name,
            choices=request.n,
        )
    except BaseException:
        held.close()
        raise
    if session is not None:
        session.conversation = None
        session.turns += 1
        held.callback(_remember, session, turn)
    return turn


def _remember(session: OpenSession, turn: ActiveTurn) -> None:
    session.tokens = turn.prompt_tokens + len(turn.choices[0].token_ids)


def _prompts(state: State, request: CompletionRequest) -> list[tuple[int, ...]]:
    given: Any = request.prompt
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        given = [given]
    prompts = [tuple(state.texts.tokenizer.encode(one) if isinstance(one, str) else one) for one in given]
    vision = state.texts.config.vision
    for number, prompt in enumerate(prompts):
        if not prompt and request.session_id is None:
            raise ApiError(400, f"prompt: prompt {number} is empty", param="prompt", code="invalid_value")
        if vision is not None and vision.image_token_id in prompt:
            raise ApiError(
                400,
                f"prompt: prompt {number} has the image token {vision.image_token_id}; images come in chat messages",
                param="prompt",
                code="invalid_value",
            )
    return prompts


def _grammar(request: CompletionRequest) -> Grammar | None:
    try:
        return request.structured_outputs.as_grammar() if request.structured_outputs is not None else None
    except GrammarError as error:
        message = f"structured_outputs: {error}"
        raise ApiError(400, message, param="structured_outputs", code="invalid_grammar") from error
