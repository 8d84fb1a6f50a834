"""A model in this very process: no server, no network, the engine's own sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from holotron.agent.chat import ChatOptions, Message, ModelUnavailable, Reply, template_messages
from holotron.engine.build import EngineOptions, build_engine
from holotron.engine.engine import Engine
from holotron.engine.errors import EngineError
from holotron.engine.grammar import Grammar
from holotron.engine.images import PreparedImage
from holotron.engine.requests import PlacedImages
from holotron.engine.sampling import SamplingParams
from holotron.engine.session import Generation, Session
from holotron.model.loading import find_checkpoint
from holotron.model.text.chat_template import load_chat_template
from holotron.model.text.conversation import ConversationWriter


class EngineModel:
    """Conversations over an engine that has a tokenizer."""

    def __init__(
        self,
        engine: Engine,
        prompts: ConversationWriter,
        style: ChatOptions | None = None,
        adapter: str | None = None,
    ) -> None:
        self.engine = engine
        self.prompts = prompts
        self.style = style or ChatOptions()
        self.adapter = adapter  # the LoRA adapter, by name, that conversations are answered with

    @property
    def name(self) -> str:
        return self.adapter or self.engine.model.config.name

    async def open(self) -> EngineChat | WindowChat:
        if self.style.windowed:
            return WindowChat(self)
        config = self.engine.model.config
        can_forget = config.count("M") > 0 and not config.uses_rope
        keep = self.style.keep_images if can_forget else None
        session = await asyncio.to_thread(self.engine.open_session, keep_images=keep, adapter=self.adapter)
        return EngineChat(self, session)

    def sampling(self, schema: Mapping[str, Any] | None) -> SamplingParams:
        style = self.style
        return SamplingParams(
            max_tokens=style.max_tokens,
            temperature=style.temperature,
            top_p=style.top_p,
            seed=style.seed,
            logprobs=0 if style.record_tokens else None,
            grammar=None if schema is None or not style.use_grammar else _grammar(json.dumps(schema)),
        )


class EngineChat:
    """One conversation in one session: only what is new is written and computed."""

    def __init__(self, model: EngineModel, session: Session) -> None:
        self._model = model
        self._session = session
        self._conversation = model.prompts.start()

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        model, style = self._model, self._model.style
        shown = [said.image for said in new if said.image is not None]
        prepared = await asyncio.gather(*(model.engine.prepare_image(image) for image in shown))
        sizes = [image.image.size for image in prepared]
        written = self._conversation.append(template_messages(new), sizes, **style.template)
        held = self._session.length
        images = list(zip(written.places, prepared, strict=True))
        try:
            answer = await self._session.generate(written.token_ids, model.sampling(schema), images=images)
        except EngineError as error:
            raise ModelUnavailable(str(error)) from error
        ended = answer.finish_reason in ("eos", "stop") and answer.token_ids and not isinstance(answer.stop, str)
        self._conversation.answered(answer.text, answer.token_ids[-1] if ended else None)
        return _reply(answer, written.token_ids, held, style.record_tokens)

    async def close(self) -> None:
        await asyncio.to_thread(self._session.close)


class WindowChat:
    """One conversation whose prompts are written anew; where one begins as the last did, the engine goes on there."""

    def __init__(self, model: EngineModel) -> None:
        self._model = model
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
            answer = await self._session.generate(written.token_ids[held:], model.sampling(schema), images=rest)
        except EngineError as error:
            raise ModelUnavailable(str(error)) from error
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
            await asyncio.to_thread(self._session.close)


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
    cuda_graphs: bool = True,
) -> Iterator[EngineModel]:
    """A small policy from its folder, with an engine of its own that is closed at the end.

    On a CPU it computes in float32: few of them are fast in 16 bits, and some are very slow.
    """
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_gpu = device.type == "cuda"
    path = find_checkpoint(str(folder))
    options = EngineOptions(
        model=str(path),
        device=str(device),
        dtype=None if on_gpu else "float32",
        memory_gib=memory / 2**30,
        tokens_per_session=tokens_per_session,
        max_context=4 * tokens_per_session,
        # Steps of a small model cost a GPU less than their launches cost the host: few large prefills, many decodes.
        prefill_tokens=16384 if on_gpu else 4096,
        prefill_every=4 if on_gpu else 1,
        threads=1 if on_gpu else None,
        cuda_graphs=cuda_graphs,
        checkpoints=0,  # a chat never goes back
        host_gib=0,
    )
    with build_engine(options) as engine:
        assert engine.tokenizer is not None
        prompts = ConversationWriter(engine.tokenizer, load_chat_template(path), engine.model.config)
        yield EngineModel(engine, prompts, replace(style or ChatOptions(), keep_images=None))
