"""One turn from its request to its end: admitted, given to the engine, followed, and accounted for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from holotron.engine.requests import TokenLogprobs
from holotron.engine.sampling import SamplingParams
from holotron.server import messages as m
from holotron.server.engine_client import EngineClient, EngineDown, EngineRefused, PendingGeneration
from holotron.server.errors import ApiError, as_api_error
from holotron.server.images import SentImage
from holotron.server.metrics import Metrics
from holotron.server.schemas import Sampling
from holotron.server.sessions import OpenSession

DEFAULT_TOKENS = 4096
REASONS = {"eos": "stop", "stop": "stop", "length": "length", "cancelled": "abort"}


@dataclass
class Choice:
    """What one answer has said so far."""

    index: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs | None] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)  # of the weights that each token is from
    forced: list[bool] = field(default_factory=list)  # whether its grammar left no other token
    text: str = ""
    finish: str | None = None
    stop: str | int | None = None

    @property
    def epoch(self) -> int:
        return self.epochs[-1] if self.epochs else 0

    def add(self, event: m.Tokens | m.Finished) -> None:
        self.text += event.text
        if isinstance(event, m.Tokens):
            self.token_ids += event.token_ids
            self.logprobs += [event.logprobs, *[None] * (len(event.token_ids) - 1)]
            self.forced += event.forced
            self.epochs += [event.epoch] * len(event.token_ids)
        else:
            self.finish = REASONS.get(event.reason, event.reason)
            self.stop = event.stop

    def tokens(self, version_of: Callable[[int], str], start: int = 0) -> dict[str, Any]:
        """What `return_token_ids` asks for, from a token on."""
        versions = [version_of(epoch) for epoch in self.epochs[start:]]
        return {"token_ids": self.token_ids[start:], "forced": self.forced[start:], "weight_versions": versions}


class ActiveTurn:
    """A generation that is under way. Whoever has it must `close` it, however it ends."""

    def __init__(
        self,
        generation: PendingGeneration,
        held: ExitStack,
        metrics: Metrics,
        seconds: float,
        fields: Mapping[str | int, str],
        prompt_ids: tuple[int, ...] = (),
    ) -> None:
        self.generation = generation
        self.prompt_ids = prompt_ids  # in a session only those that were new
        self.choices = [Choice(i) for i in range(generation.choices)]
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self._held = held
        self._metrics = metrics
        self._began = time.monotonic()
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._fields = fields  # of the request, by what the engine may refuse: a kind, or the number of an image
        self._last = self._began

    async def start(self) -> None:
        """Wait for the engine to take the turn, or to say why not."""
        try:
            async with asyncio.timeout_at(self._deadline):
                started = await self.generation.started()
        except EngineRefused as error:
            self.close()
            found = as_api_error(error)
            if field := self._fields.get(error.kind if error.index is None else error.index):
                found.param, found.message = field, f"{field}: {found.message}"
            raise found from error
        except BaseException:
            self.close()
            raise
        self.prompt_tokens, self.cached_tokens = started.prompt_tokens, started.cached_tokens
        self._metrics.prompted(started.prompt_tokens, started.cached_tokens)

    async def events(self) -> AsyncIterator[tuple[Choice, m.Tokens | m.Finished]]:
        """What happens, after each choice has taken note of it."""
        happenings = self.generation.__aiter__()
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    event = await anext(happenings)
            except StopAsyncIteration:
                return
            choice = self.choices[event.choice]
            choice.add(event)
            self._measure(choice, event)
            if isinstance(event, m.Finished) and event.error is not None:
                raise ApiError(500, f"the generation failed: {event.error}", code="generation_failed")
            yield choice, event

    async def collect(self) -> None:
        """Until every choice is finished."""
        async for _ in self.events():
            pass

    def close(self) -> None:
        """Free what the turn holds, and stop it if it still runs."""
        self.generation.cancel()
        self._held.close()

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)

    def usage(self) -> dict[str, Any]:
        completion = self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self.prompt_tokens + completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }

    def _measure(self, choice: Choice, event: m.Tokens | m.Finished) -> None:
        now = time.monotonic()
        if isinstance(event, m.Tokens):
            if len(choice.token_ids) == len(event.token_ids):
                self._metrics.first_token.observe(now - self._began)
            else:
                self._metrics.between_tokens.observe(now - self._last)
            self._last = now
            self._metrics.generated(len(event.token_ids))
        else:
            self._metrics.finished(choice.finish or "stop", now - self._began)


async def begin_turn(
    client: EngineClient,
    metrics: Metrics,
    held: ExitStack,
    seconds: float,
    token_ids: tuple[int, ...],
    images: list[tuple[int, SentImage]],
    sampling: SamplingParams,
    *,
    fields: Mapping[str, str],
    session: OpenSession | None = None,
    pool: str | None = None,
    choices: int = 1,
) -> ActiveTurn:
    """Give a turn to the engine; `held` is closed when it ends, however that happens.

    `fields` are those of the request that the engine may find invalid, too long, or a bad grammar.
    """
    try:
        files = tuple((offset, image.data) for offset, image in images)
        id_ = session.id if session else None
        generation = client.generate(token_ids, files, sampling, session=id_, pool=pool, choices=choices)
        blamed: dict[str | int, str] = {number: image.field for number, (_, image) in enumerate(images)}
        blamed.update(fields.items())
        turn = ActiveTurn(generation, held, metrics, seconds, blamed, token_ids)
    except BaseException:
        held.close()
        raise
    kept = held.pop_all()  # for whoever ends the turn, which is not always its owner
    try:
        await turn.start()
    except BaseException as error:
        if session and isinstance(error, asyncio.CancelledError | TimeoutError):
            client.look_after(_undo(client, session, kept))
        else:
            kept.close()
        raise
    held.push(kept)
    return turn


async def _undo(client: EngineClient, session: OpenSession, held: ExitStack) -> None:
    """Have a session forget a turn that nobody waited for; it is at work until it has.

    Whether the engine had begun the turn when its client left is not known here, and must not be left open.
    """
    with held, suppress(EngineDown, EngineRefused):
        while (told := await client.call(lambda number: m.Inspect(number, session.id)))["running"]:
            await asyncio.sleep(0.01)
        if len(told["turns"]) > session.turns:
            await client.call(lambda number: m.Rollback(number, session.id, session.turns, False))


def sampling_params(
    request: Sampling, *, vocabulary: int, max_tokens: int | None, room: int, logprobs: int | None, **more: Any
) -> SamplingParams:
    """The engine's parameters for a request, with room for so many tokens."""
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    bias = {int(id_): value for id_, value in request.logit_bias.items()} if request.logit_bias else None
    for name, ids in (("stop_token_ids", request.stop_token_ids), ("logit_bias", bias or ())):
        if wrong := [id_ for id_ in ids if id_ >= vocabulary]:
            message = f"{name}: there is no token {wrong[0]}; the vocabulary has {vocabulary}"
            raise ApiError(400, message, param=name, code="invalid_value")
    most = max_tokens if max_tokens is not None else max(1, min(DEFAULT_TOKENS, room))
    try:
        return SamplingParams(
            max_tokens=most,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=max(0, request.top_k),
            min_p=request.min_p,
            seed=request.seed,
            stop=stop,
            stop_token_ids=tuple(request.stop_token_ids),
            ignore_eos=request.ignore_eos,
            min_tokens=request.min_tokens,
            logprobs=logprobs,
            logit_bias=bias,
            repetition_penalty=request.repetition_penalty,
            presence_penalty=request.presence_penalty,
            frequency_penalty=request.frequency_penalty,
            **more,
        )
    except ValueError as error:
        field = str(error).split(" ", 1)[0]
        raise ApiError(400, str(error), param=field, code="invalid_value") from error
