"""A model as an agent talks to it, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class ModelUnavailable(Exception):
    """The model could not be asked: the network, the server or the engine failed. Nobody's fault who acts."""


@dataclass(frozen=True)
class Message:
    """One message: a text, and the screenshot that goes with it, before it or after it."""

    role: str
    text: str
    image: bytes | None = None
    image_first: bool = True

    def content(self, image: Mapping[str, Any]) -> str | list[Mapping[str, Any]]:
        """As chat templates and OpenAI's API take it, with this part for the image."""
        if self.image is None:
            return self.text
        text = {"type": "text", "text": self.text}
        return [image, text] if self.image_first else [text, image]


@dataclass(frozen=True)
class Reply:
    """What the model wrote, and what training wants to know about it; the fields are those of a stored ModelOutput."""

    text: str
    prompt_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    model_logprobs: tuple[float, ...] | None = None
    forced: tuple[bool, ...] | None = None
    weight_version: str | int | None = None
    weight_versions: tuple[str | int, ...] | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None


@dataclass(frozen=True)
class ChatOptions:
    """How the model is asked. keep_images: how many of the last screenshots it is shown, None for all of them."""

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    keep_images: int | None = 3
    use_grammar: bool = True
    record_tokens: bool = True
    template: Mapping[str, Any] = field(default_factory=dict)  # variables of the chat template


class Chat(Protocol):
    """One conversation."""

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Add messages and hear the answer, which is a JSON text after the schema if there is one."""
        ...

    async def close(self) -> None: ...


class ChatModel(Protocol):
    """Something that can hold many conversations at once."""

    @property
    def name(self) -> str: ...

    async def open(self) -> Chat: ...


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As chat templates take them: an image is only a place."""
    return [{"role": message.role, "content": message.content({"type": "image"})} for message in messages]


def trimmed(messages: Sequence[Message], keep_images: int | None) -> list[Message]:
    """The conversation with a line of text in place of all but the last screenshots."""
    if keep_images is None:
        return list(messages)
    shown = [i for i, said in enumerate(messages) if said.image is not None]
    dropped = set(shown[: max(0, len(shown) - keep_images)])
    return [
        Message(said.role, f"{said.text}\n(an older screenshot, no longer shown)".strip()) if i in dropped else said
        for i, said in enumerate(messages)
    ]
