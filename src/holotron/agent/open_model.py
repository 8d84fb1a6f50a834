"""A model by name or address, ready to talk, and how it says that it is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from holotron.agent.chat import ChatModel, ChatOptions
from holotron.agent.policy_format import PolicyFormat, format_of, read_format
from holotron.agent.policy_format import stated_format as checkpoint_format


def stated_format(model: str | None, endpoint: str | None = None, name: str | None = None) -> PolicyFormat | None:
    """What the checkpoint says, here or at the endpoint; None where it does not. ModelUnavailable if that is away."""
    if endpoint is not None:
        from holotron.agent.endpoint import find_card, find_key

        stated = find_card(endpoint, name, find_key()).get("policy_format")
        return None if stated is None else read_format(stated)
    if model is None:
        return None
    from holotron.model.loading import find_checkpoint

    return format_of(find_checkpoint(model))


@asynccontextmanager
async def open_endpoint(endpoint: str, name: str | None, options: ChatOptions) -> AsyncIterator[ChatModel]:
    """A client of an OpenAI-compatible server; the key comes from the environment."""
    from holotron.agent.endpoint import EndpointModel, find_key

    client = EndpointModel(endpoint, name, find_key(), options)
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def open_model(model: str, options: ChatOptions, device: str | None = None) -> AsyncIterator[ChatModel]:
    """A model in this process, from a folder, a hub id or a preset's name; its engine is closed at the end."""
    from holotron.agent.in_process import EngineModel, loaded
    from holotron.engine.build import EngineOptions, build_engine
    from holotron.model.loading import find_checkpoint
    from holotron.model.text.chat_template import load_chat_template
    from holotron.model.text.conversation import ConversationWriter

    if checkpoint_format(find_checkpoint(model)) is not None:  # a policy that was made here
        with loaded(model, device, style=options) as policy:
            yield policy
        return
    with build_engine(EngineOptions(model=model, device=device)) as engine:
        assert engine.tokenizer is not None
        template = load_chat_template(find_checkpoint(model))
        yield EngineModel(engine, ConversationWriter(engine.tokenizer, template, engine.model.config), options)


def options_for(policy_format: PolicyFormat, options: ChatOptions) -> ChatOptions:
    """The options with what the format says of a conversation: screenshots in view, history, template variables."""
    asked = policy_format.options(options.max_tokens, options.temperature)
    template = {**asked.template, **options.template}
    return replace(options, keep_images=asked.keep_images, history=asked.history, template=template)
