"""One turn from its request to its end: admitted, given to the engine, followed, and accounted for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from holotron.engine.errors import GrammarFailed
from holotron.engine.grammar import Grammar
from holotron.engine.requests import Event, FinishEvent, PromptEvent, TokenEvent, TokenLogprobs
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session import Generation
from holotron.model.text.conversation import Conversation
from holotron.model.text.tokenizer import Tokenizer
from holotron.server import messages as m
from holotron.server.affinity import affinity
from holotron.server.auth import Caller
from holotron.server.engine_client import EngineDown, EngineRefused, PendingGeneration
from holotron.server.engine_service import EngineService
from holotron.server.errors import ApiError, as_api_error, field_error
from holotron.server.images import SentImage
from holotron.server.lengths import too_long
from holotron.server.reasoning import ReasoningDialect, Thinking
from holotron.server.schemas import ChatRequest, CompletionRequest, Sampling
from holotron.server.sessions import OpenSession
from holotron.server.state import ServerState

DEFAULT_TOKENS = 4096
REASONS = {"eos": "stop", "stop": "stop", "length": "length", "cancelled": "abort"}
# Fields of a request that the engine takes as they are.
SAME_FIELDS = {field.name for field in fields(SamplingParams)} & Sampling.model_fields.keys()
SAME_FIELDS -= {"prompt_logprobs", "top_k", "stop", "stop_token_ids", "logit_bias"}


@dataclass
class Choice(Generation):
    """What one answer has said so far."""

    index: int = 0
    prompt_logprobs: Sequence[TokenLogprobs | None] | None = None  # if they were asked for
    as_drawn: bool = False  # log-probabilities are those of the draw in place of the model's own

    @property
    def epoch(self) -> int:
        return self.epochs[-1] if self.epochs else 0

    @property
    def finish(self) -> str | None:
        """Why it ended, as OpenAI's clients know it; None while it goes on."""
        return REASONS.get(self.finish_reason, self.finish_reason) or None

    def add(self, event: Event) -> None:
        if self.as_drawn and isinstance(event, TokenEvent) and event.logprobs is not None:
            event = event._replace(logprobs=replace(event.logprobs, model=event.logprobs.sampling))
        super().add(event)

    def tokens(self, version_of: Callable[[int], str], start: int = 0) -> dict[str, Any]:
        """What `return_token_ids` asks for, from a token on."""
        versions = [version_of(epoch) for epoch in self.epochs[start:]]
        return {"token_ids": self.token_ids[start:], "forced": self.forced[start:], "weight_versions": versions}


@dataclass(frozen=True)
class Prompt:
    """What a turn appends: tokens, and the offset of each image's first one."""

    token_ids: tuple[int, ...]
    images: Sequence[tuple[int, SentImage]] = ()
    conversation: Conversation | None = None  # with the prompt in it; None where no messages stand for the tokens
    thinking: Thinking = Thinking.OVER
    around: str = ""  # the grammar of what may come before the form of the answer

    def thinking_in(self, dialect: ReasoningDialect | None, tokenizer: Tokenizer) -> Prompt:
        """The prompt of a model that thinks, with where its answer begins."""
        if dialect is None:
            return self
        thinking = dialect.begins(tokenizer, self.token_ids)
        return replace(self, thinking=thinking, around=dialect.grammar_around(thinking, tokenizer.markup))


class ActiveTurn:
    """A generation that is under way. Its owner must `close` it, however it ends."""

    def __init__(
        self,
        generation: PendingGeneration,
        held: ExitStack,
        state: ServerState,
        prompt: Prompt,
        adapter: str | None,
        grammar_field: str = "structured_outputs",
        as_drawn: bool = False,
    ) -> None:
        self.generation = generation
        self.model = adapter or state.settings.model_name
        self.prompt = prompt
        self.prompt_ids = prompt.token_ids  # in a session only those that were new
        self.choices = [Choice(index=i, as_drawn=as_drawn) for i in range(generation.choices)]
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self._held = held
        self._grammar_field = grammar_field
        self._failed = self._closed = False
        self._session: tuple[OpenSession, Conversation | None, bool] | None = None
        self._client = state.client
        self._metrics = state.metrics
        self._began = self._last = time.monotonic()
        self._deadline = asyncio.get_running_loop().time() + state.settings.request_seconds

    async def start(self) -> None:
        """Wait for the engine to take the turn, or to say why not."""
        async with asyncio.timeout_at(self._deadline):
            started = await self.generation.started()
        self.prompt_tokens, self.cached_tokens = started.prompt_tokens, started.cached_tokens
        self._metrics.prompted(started.prompt_tokens, started.cached_tokens)

    async def events(self) -> AsyncIterator[tuple[Choice, Event]]:
        """What happens, after each choice has taken note of it."""
        told = aiter(self.generation)
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    number, event = await anext(told)
            except StopAsyncIteration:
                return
            choice = self.choices[number]
            if isinstance(event, PromptEvent):
                choice.prompt_logprobs = event.logprobs
                continue
            choice.add(event)
            self._measure(choice, event)
            if isinstance(event, FinishEvent) and event.error is not None:
                self._failed = True
                raise self._failure(event.error)
            yield choice, event

    async def collect(self) -> None:
        """Until every choice is finished."""
        async for _ in self.events():
            pass

    def enter(self, session: OpenSession, keep_partial: bool) -> None:
        """Make it a turn of the session, now that the engine has taken it."""
        self._session = session, session.conversation, keep_partial
        session.conversation = self.prompt.conversation
        session.turns += 1

    @property
    def complete(self) -> bool:
        """Whether everything that it was to say has been said."""
        return not self._failed and all(choice.finish is not None for choice in self.choices)

    def close(self) -> None:
        """Free what the turn holds, and stop it if it still runs: then its session forgets it, unless it is kept."""
        if self._closed:
            return
        self._closed = True
        self.generation.cancel()
        if self._session is None:
            self._held.close()
            return
        session, before, keep_partial = self._session
        if self.complete or keep_partial:
            _remember(session, self.prompt.conversation, self)
            self._held.close()
        else:  # or a client that tries again would have asked twice
            session.conversation = before
            session.turns -= 1
            _take_back(self._client, session, self._held, self.prompt)

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)

    def _failure(self, error: Exception) -> ApiError:
        if isinstance(error, GrammarFailed):
            return field_error(self._grammar_field, f"the answer could not be held to it: {error}", "invalid_grammar")
        return ApiError(500, f"the generation failed: {error}", code="generation_failed")

    def _measure(self, choice: Choice, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, TokenEvent):
            if len(choice.token_ids) == len(event.token_ids):
                self._metrics.first_token.observe(now - self._began)
            else:
                self._metrics.between_tokens.observe(now - self._last)
            self._last = now
            self._metrics.generated_tokens.inc(len(event.token_ids))
        else:
            tokens = len(choice.token_ids)
            self._metrics.finished(choice.finish or "stop", now - self._began, event, self.prompt_tokens, tokens)


async def begin_turn(
    state: ServerState,
    request: ChatRequest | CompletionRequest,
    caller: Caller,
    prompt: Prompt | Callable[[OpenSession | None], Awaitable[Prompt]],
    grammar: Grammar | None,
    blamed: Mapping[str, str],
) -> ActiveTurn:
    """Admit a turn, write its prompt where that depends on its session, and give it to the engine.

    `blamed` are the fields of the request that the engine may find invalid, too long, or a bad grammar.
    """
    session: OpenSession | None = None
    adapter = state.check_model(request.model)
    held = ExitStack()  # closed when the turn ends, however that happens
    try:
        held.enter_context(state.admission.enter(caller, request.n))
        if request.session_id is not None:
            session = state.sessions.find(request.session_id, caller)
            await session.rest()
            held.enter_context(session.working())
            if request.model is not None and adapter != session.adapter:
                problem = f"the session was opened with {session.adapter or state.settings.model_name!r}"
                raise field_error("model", f"{problem}; what it remembers is of no use to {request.model!r}")
            adapter = session.adapter
            session.expect(request.expected_turns)
        elif request.expected_turns is not None:
            raise field_error("expected_turns", "it is about a session, and there is none")
        if not isinstance(prompt, Prompt):
            prompt = await prompt(session)
        if len(prompt.token_ids) > state.max_context:
            raise too_long(blamed["too_long"], state.max_context)
        if grammar is not None and prompt.around:
            grammar = replace(grammar, within=prompt.around)
        sampling = _sampling_params(state, request, session.tokens if session else 0, prompt, grammar)
        images = tuple((offset, image.data) for offset, image in prompt.images)
        # A key's requests share what was computed; salted ones only with those of the same salt.
        pool = caller.name if request.cache_salt is None else f"{caller.name}/{request.cache_salt}"
        wanted = m.Generate(prompt.token_ids, sampling, images, request.session_id, pool, request.n, adapter)
        asked = None if prompt.conversation is None else prompt.conversation.asked()
        wanted = replace(wanted, affinity=affinity.get(), note={"asked": asked, "keep_partial": request.keep_partial})
        generation = state.client.generate(wanted)
        # A greedy answer is not drawn.
        as_drawn = state.settings.logprobs_mode == "processed_logprobs" and request.temperature > 0
        turn = ActiveTurn(generation, held, state, prompt, adapter, blamed["grammar"], as_drawn)
    except BaseException:
        held.close()
        raise
    try:
        await turn.start()
    except BaseException as error:
        generation.cancel()
        if session and isinstance(error, asyncio.CancelledError | TimeoutError):
            _take_back(state.client, session, held, prompt)
        else:
            held.close()
        if isinstance(error, EngineRefused):
            raise _refusal(error, prompt, blamed) from error
        raise
    if session is not None:
        turn.enter(session, request.keep_partial)
    return turn


def _refusal(error: EngineRefused, prompt: Prompt, blamed: Mapping[str, str]) -> ApiError:
    """What the engine has against a turn, with the field of the request that it is about."""
    found = as_api_error(error)
    field = blamed.get(error.kind) if error.index is None else prompt.images[error.index][1].field
    if field is not None:
        found.param, found.message = field, f"{field}: {found.message}"
    return found


def _remember(session: OpenSession, conversation: Conversation | None, turn: ActiveTurn) -> None:
    """The session has heard the question and said what it said."""
    choice = turn.choices[0]
    if conversation is not None:
        conversation.answered(choice.text, choice.ended_with)
    session.tokens = turn.prompt_tokens + len(choice.token_ids)


def _take_back(client: EngineService, session: OpenSession, held: ExitStack, prompt: Prompt) -> None:
    session.ending = True
    client.run_in_background(_undo(client, session, held, prompt))


async def _undo(client: EngineService, session: OpenSession, held: ExitStack, prompt: Prompt) -> None:
    """Roll a session back over a turn whose client left; it is at work until it has.

    Whether the engine had begun the turn when its client left is not known here, and must not be left open.
    """
    with held, suppress(EngineDown, EngineRefused):
        while (info := await client.call("describe", session.id)).running:
            await asyncio.sleep(0.01)
        if len(info.turns) > session.turns:
            # A turn that brought nothing answered a question that was there before.
            await client.call("rollback", session.id, session.turns, keep_prompt=not prompt.token_ids)


def _sampling_params(
    state: ServerState, request: ChatRequest | CompletionRequest, known: int, prompt: Prompt, grammar: Grammar | None
) -> SamplingParams:
    """The engine's parameters for a request whose session has so many tokens."""
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    bias = {int(id_): value for id_, value in request.logit_bias.items()} if request.logit_bias else None
    vocabulary = state.texts.config.vocab_size
    for name, ids in (("stop_token_ids", request.stop_token_ids), ("logit_bias", bias or ())):
        if wrong := [id_ for id_ in ids if id_ >= vocabulary]:
            problem = f"there is no token {wrong[0]}; the vocabulary has {vocabulary}"
            raise field_error(name, problem, "invalid_value")
    if grammar is not None and request.min_tokens:
        raise field_error("min_tokens", "the form that the answer must have says itself where it ends", "invalid_value")
    if request.n > 1 and request.prompt_logprob_count is not None:
        raise field_error("n", "it must be 1 where the prompt's log-probabilities are told", "invalid_value")
    room = max(1, min(DEFAULT_TOKENS, state.max_context - known - len(prompt.token_ids)))
    try:
        return SamplingParams(
            max_tokens=room if request.token_limit is None else request.token_limit,
            top_k=max(0, request.top_k),
            stop=stop,
            stop_token_ids=tuple(request.stop_token_ids),
            logprobs=request.logprob_count,
            prompt_logprobs=request.prompt_logprob_count,
            logit_bias=bias,
            grammar=grammar,
            **request.model_dump(include=SAME_FIELDS),
        )
    except ValueError as error:
        field = str(error).split(" ", 1)[0]
        raise ApiError(400, str(error), param=field, code="invalid_value") from error
