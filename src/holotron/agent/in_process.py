"""A model in this very process: no server, no network, the engine's own sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from holotron.agent.chat import ChatOptions, Message, ModelUnavailable, OfSchema, Reply, template_messages, turn_seed
from holotron.agent.shared_prompts import SharedPrompts
from holotron.engine.build import EngineOptions, build_engine
from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.engine.grammar import Grammar
from holotron.engine.images import PreparedImage
from holotron.engine.requests import PlacedImages
from holotron.engine.sampling_params import SamplingParams
from holotron.engine.session import Generation, Session
from holotron.model.loading import find_checkpoint
from holotron.model.model import Model
from holotron.model.text.chat_template import load_chat_template
from holotron.model.text.conversation import ConversationWriter

MOST_SMALL = 1e9  # parameters of a model whose steps take the host longer than the device


class EngineModel:
    """Conversations over an engine that has a tokenizer.

    on_update: what their sessions do with what they remember when weights change. group: so many conversations begin
    with the same prompt, which is computed once and forked for each.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: ConversationWriter,
        style: ChatOptions | None = None,
        adapter: str | None = None,
        *,
        on_update: str = "keep",
        group: int = 1,
    ) -> None:
        self.engine = engine
        self.prompts = prompts
        self.style = style or ChatOptions()
        self.adapter = adapter  # the LoRA adapter, by name, that conversations are answered with
        self.on_update = on_update
        self._grammar = OfSchema(lambda schema: _grammar(json.dumps(schema)))
        self._group = group
        self.shared = (
            SharedPrompts[Session](lambda session: asyncio.wrap_future(session.closing())) if group > 1 else None
        )

    @property
    def name(self) -> str:
        return self.adapter or self.engine.model.config.name

    async def open(self, seed: int | None = None) -> EngineChat | WindowChat:
        if self.style.windowed:
            return WindowChat(self, seed)
        if self.shared is not None:  # it is forked from others of the group once its prompt is known
            return EngineChat(self, None, seed)
        session = await asyncio.wrap_future(self._opening_session())
        return EngineChat(self, session, seed)

    async def open_seeded(self, seed: int) -> EngineChat | WindowChat:
        """A conversation whose draws follow from the seed, whatever else the engine does."""
        return await self.open(seed)

    async def first_session(self, token_ids: Sequence[int], images: PlacedImages) -> Session:
        """One that begins so, forked from what others of the group began with."""

        def fork() -> list[Session]:
            session = self.open_session()
            session.append(token_ids, images)
            return [session, *session.fork(self._group - 1)]

        assert self.shared is not None
        prompt = tuple(token_ids), tuple((place, prepared.key) for place, prepared in images)
        return await self.shared.take(prompt, lambda: asyncio.to_thread(fork), self.engine.loop.epoch)

    def open_session(self) -> Session:
        return self._opening_session().result()

    def _opening_session(self) -> Future[Session]:
        config = self.engine.model.config
        can_forget = config.count("M") > 0 and not config.uses_rope
        keep = self.style.keep_images if can_forget else None
        return self.engine.opening_session(None, self.on_update, keep, self.adapter)

    def sampling(self, schema: Mapping[str, Any] | None, seed: int | None, turn: int) -> SamplingParams:
        """How a turn is drawn; seed: the conversation's, where it has one."""
        style = self.style
        return SamplingParams(
            max_tokens=style.max_tokens,
            temperature=style.temperature,
            top_p=style.top_p,
            seed=style.seed if seed is None else turn_seed(seed, turn),
            logprobs=0 if style.record_tokens else None,
            grammar=None if schema is None or not style.use_grammar else self._grammar(schema),
        )


class EngineChat:
    """One conversation in one session: only what is new is written and computed."""

    def __init__(self, model: EngineModel, session: Session | None, seed: int | None = None) -> None:
        self._model = model
        self._session = session
        self._seed, self._turns = seed, 0
        self._conversation = model.prompts.start()

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        model, style = self._model, self._model.style
        shown = [said.image for said in new if said.image is not None]
        prepared = await asyncio.gather(*(model.engine.prepare_image(image) for image in shown))
        sizes = [image.image.size for image in prepared]
        written = self._conversation.append(template_messages(new), sizes, **style.template)
        placed, new_ids = list(zip(written.places, prepared, strict=True)), written.token_ids
        if self._session is None:
            self._session = await model.first_session(new_ids, placed)
            placed, new_ids, held = [], (), 0
        else:
            held = self._session.length
        sampling = model.sampling(schema, self._seed, self._turns)
        self._turns += 1
        try:
            answer = await self._session.generate(new_ids, sampling, images=placed)
        except EngineError as error:
            raise ModelUnavailable(str(error)) from error
        ended = answer.finish_reason in ("eos", "stop") and answer.token_ids and not isinstance(answer.stop, str)
        self._conversation.answered(answer.text, answer.token_ids[-1] if ended else None)
        return _reply(answer, written.token_ids, held, style.record_tokens)

    async def close(self) -> None:
        if self._session is not None:
            await asyncio.shield(asyncio.wrap_future(self._session.closing()))


class WindowChat:
    """One conversation whose prompts are written anew; where one begins as the last did, the engine goes on there."""

    def __init__(self, model: EngineModel, seed: int | None = None) -> None:
        self._model, self._seed, self._turns = model, seed, 0
        self._pool = f"conversation {id(self)}"  # of its own: what it goes on from is its last prompt
        self._session: Session | None = None
        self._messages: list[Message] = []
        self._prepared: dict[bytes, PreparedImage] = {}

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        model, style = self._model, self._model.style
        told = style.sent_whole([*self._messages, *new])
        shown = [said.image for said in told if said.image is not None]
        missing = {image for image in shown if image not in self._prepared}
        found = await asyncio.gather(*(model.engine.prepare_image(image) for image in missing))
        known = self._prepared | dict(zip(missing, found, strict=True))
        self._prepared = {image: known[image] for image in shown}
        prepared = [known[image] for image in shown]
        sizes = [image.image.size for image in prepared]
        written = model.prompts.write(template_messages(told), sizes, **style.template)
        images = list(zip(written.places, prepared, strict=True))
        try:
            held = await asyncio.to_thread(self._go_on, written.token_ids, images)
            assert self._session is not None
            rest = [(place - held, image) for place, image in images if place >= held]
            sampling = model.sampling(schema, self._seed, self._turns)
            answer = await self._session.generate(written.token_ids[held:], sampling, images=rest)
        except EngineError as error:
            raise ModelUnavailable(str(error)) from error
        self._turns += 1
        self._messages += [*new, Message("assistant", answer.text)]
        return replace(_reply(answer, written.token_ids, 0, style.record_tokens), cached_tokens=held)

    def _go_on(self, token_ids: Sequence[int], images: PlacedImages) -> int:
        """Stand where the last prompt and this one part; how many tokens that is."""
        adapter, last = self._model.adapter, self._session
        self._session, held = self._model.engine.continue_or_open(token_ids, images, self._pool, adapter=adapter)
        if last is not None and last.id != self._session.id:
            last.close()
        return held

    async def close(self) -> None:
        if self._session is not None:
            await asyncio.shield(asyncio.wrap_future(self._session.closing()))


@lru_cache(maxsize=64)
def _grammar(schema: str) -> Grammar:
    """Checked once: an agent asks for the same form at every step."""
    lark = json.loads(schema).get("lark")
    return Grammar("json_schema", schema) if lark is None else Grammar("lark", lark)


def _reply(answer: Generation, prompt_ids: tuple[int, ...], held: int, recorded: bool) -> Reply:
    # A forced token was not drawn, so it has no log-probabilities: where its grammar stands, it is certain.
    sampling = tuple(0.0 if entry is None else entry.sampling for entry in answer.logprobs)
    model = tuple(0.0 if entry is None else entry.model for entry in answer.logprobs)
    return Reply(
        text=answer.text,
        prompt_ids=prompt_ids,
        token_ids=tuple(answer.token_ids),
        logprobs=sampling if recorded else None,
        model_logprobs=model if recorded else None,
        forced=tuple(answer.forced) if recorded else None,
        weight_version=answer.epochs[-1] if answer.epochs else None,
        weight_versions=tuple(answer.epochs) if len(set(answer.epochs)) > 1 else None,
        prompt_tokens=held + len(prompt_ids),
        cached_tokens=held,
        completion_tokens=len(answer.token_ids),
        finish_reason="stop" if answer.finish_reason == "eos" else answer.finish_reason,
    )


@contextmanager
def loaded(
    folder: Path | str,
    device: torch.device | str | None = None,
    *,
    style: ChatOptions | None = None,
    memory: int = 2 * 2**30,
    tokens_per_session: int = 8192,
    on_update: str = "keep",
    group: int = 1,
    bf16_products: bool = True,
) -> Iterator[EngineModel]:
    """A small policy from its folder, with an engine of its own that is closed at the end.

    On a CPU it computes in float32, and multiplies in bfloat16 where the processor has instructions for that and
    `bf16_products` allows it.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    path = find_checkpoint(str(folder))
    options = _options(str(path), device, memory, tokens_per_session)
    options = replace(options, bf16_products=bf16_products)
    with build_engine(options) as engine:
        assert engine.tokenizer is not None
        prompts = ConversationWriter(engine.tokenizer, load_chat_template(path), engine.model.config)
        asked = replace(style or ChatOptions(), keep_images=None)
        yield EngineModel(engine, prompts, asked, on_update=on_update, group=group)


@contextmanager
def serving(
    model: Model,
    prompts: ConversationWriter,
    style: ChatOptions,
    *,
    adapter: str | None = None,
    memory: int = 2 * 2**30,
    tokens_per_session: int = 8192,
    on_update: str = "keep",
    group: int = 1,
) -> Iterator[EngineModel]:
    """As `loaded`, of a model that is in memory already and stays its owner's. adapter: one that it will be given."""
    options = _options(model.config.name, model.device, memory, tokens_per_session)
    if model.config.parameters > MOST_SMALL:  # which prompts keep busy: they are better taken up beside what decodes
        usual = EngineOptions()
        options = replace(options, prefill_tokens=usual.prefill_tokens, prefill_every=usual.prefill_every)
    with build_engine(options, model, prompts.tokenizer) as engine:
        asked = replace(style, keep_images=None)
        yield EngineModel(engine, prompts, asked, adapter, on_update=on_update, group=group)


def _options(model: str, device: torch.device, memory: int, tokens_per_session: int) -> EngineOptions:
    on_gpu = device.type == "cuda"
    return EngineOptions(
        model=model,
        device=str(device),
        dtype=None if on_gpu else "float32",
        memory_gib=memory / 2**30,
        tokens_per_session=tokens_per_session,
        max_context=4 * tokens_per_session,
        # Steps of a small model cost a GPU less than their launches cost the host: few large prefills, many decodes.
        prefill_tokens=16384 if on_gpu else 4096,
        prefill_every=4 if on_gpu else 1,
        threads=1 if on_gpu else None,
        checkpoints=0,  # a chat never goes back
        host_gib=0,
    )
