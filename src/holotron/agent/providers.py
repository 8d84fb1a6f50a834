"""The providers whose computer tools can act, by the names that stand in place of an address."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holotron.agent.chat import ChatModel, ChatOptions
from holotron.agent.formats.remote import AnthropicComputerFormat, OpenAIComputerFormat
from holotron.agent.policy_format import PolicyFormat

PROVIDERS: dict[str, PolicyFormat] = {"openai": OpenAIComputerFormat(), "anthropic": AnthropicComputerFormat()}


@asynccontextmanager
async def open_provider(provider: str, model: str, style: ChatOptions) -> AsyncIterator[ChatModel]:
    """A provider's model with its computer tool; ModelUnavailable where its key or its client is missing."""
    from holotron.agent.anthropic_computer import AnthropicComputer
    from holotron.agent.openai_computer import OpenAIComputer

    acting = (OpenAIComputer if provider == "openai" else AnthropicComputer)(model, style)
    try:
        yield acting
    finally:
        await acting.aclose()
