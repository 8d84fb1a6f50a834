"""A model by name or address, ready to talk, and how it says that it is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

from holotron.agent.chat import ChatModel, ChatOptions
from holotron.agent.formats.remote import AnthropicComputerFormat, OpenAIComputerFormat
from holotron.agent.policy_format import PolicyFormat, format_of, format_of_name, read_format, stated_format
from holotron.engine.errors import EngineError

if TYPE_CHECKING:
    from holotron.agent.in_process import EngineModel
    from holotron.engine.engine import Engine


# The providers whose computer tools can act, by the names that stand in place of an address.
PROVIDERS: dict[str, PolicyFormat] = {"openai": OpenAIComputerFormat(), "anthropic": AnthropicComputerFormat()}


def resolve_format(model: str | None, endpoint: str | None = None, name: str | None = None) -> PolicyFormat | None:
    """How the model is asked by its checkpoint, here or at the endpoint, or by its name there; None if nothing tells.

    ModelUnavailable if the endpoint is away.
    """
    if endpoint in PROVIDERS:
        return PROVIDERS[endpoint]
    if endpoint is not None:
        from holotron.agent.endpoint import find_card, find_key

        card = find_card(endpoint, name, find_key())
        stated = card.get("policy_format")
        return format_of_name(str(name or card.get("id", ""))) if stated is None else read_format(stated)
    if model is None:
        return None
    from holotron.model.loading import find_checkpoint

    return format_of(find_checkpoint(model))


@asynccontextmanager
async def open_endpoint(endpoint: str, name: str | None, options: ChatOptions) -> AsyncIterator[ChatModel]:
    """A client of an OpenAI-compatible server, or a provider's computer tool; the key comes from the environment.

    ModelUnavailable where a provider's key or its client is missing.
    """
    from holotron.agent.anthropic_computer import AnthropicComputer
    from holotron.agent.endpoint import EndpointModel, find_key
    from holotron.agent.openai_computer import OpenAIComputer

    client: EndpointModel | OpenAIComputer | AnthropicComputer
    if endpoint in PROVIDERS:
        client = (OpenAIComputer if endpoint == "openai" else AnthropicComputer)(name or "", options)
    else:
        client = EndpointModel(endpoint, name, find_key(), options)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def open_model(model: str, options: ChatOptions, device: str | None = None) -> AsyncIterator[EngineModel]:
    """A model in this process, from a folder, a hub id or a preset's name; its engine is closed at the end."""
    with loaded_model(model, options, device) as policy:
        yield policy


@contextmanager
def loaded_model(model: str, options: ChatOptions, device: str | None = None) -> Iterator[EngineModel]:
    """As `open_model`, where nothing runs an event loop yet."""
    from holotron.agent.in_process import EngineModel, loaded
    from holotron.engine.build import EngineOptions, build_engine
    from holotron.model.loading import find_checkpoint
    from holotron.model.text.chat_template import load_chat_template
    from holotron.model.text.conversation import ConversationWriter

    if stated_format(find_checkpoint(model)) is not None:  # a policy that was made here
        with loaded(model, device, style=options) as policy:
            yield policy
        return
    with build_engine(EngineOptions(model=model, device=device)) as engine:
        assert engine.tokenizer is not None
        template = load_chat_template(find_checkpoint(model))
        yield EngineModel(engine, ConversationWriter(engine.tokenizer, template, engine.model.config), options)


@contextmanager
def warmed_model(model: str, options: ChatOptions, device: str | None, sessions: int) -> Iterator[EngineModel]:
    """As `loaded_model`; what so many sessions will make it run is compiled while others go on, such as browsers."""
    with loaded_model(model, options, device) as policy:
        Thread(target=_warm_up, args=(policy.engine, sessions), name="warm-up", daemon=True).start()
        yield policy  # at whose end the engine is closed, which ends the warming


def _warm_up(engine: Engine, sessions: int) -> None:
    with suppress(EngineError):  # it was closed before it was warm
        engine.warm_up(sessions)
