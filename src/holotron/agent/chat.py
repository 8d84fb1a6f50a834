"""A model as an agent talks to it, wherever it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


class ModelUnavailable(Exception):
    """The model could not be asked: the network, the server or the engine failed. Nobody's fault who acts."""


@dataclass(frozen=True)
class Message:
    """One message: a text, and the screenshot that goes with it, before it or after it. tail: text after the image."""

    role: str
    text: str
    image: bytes | None = None
    image_first: bool = True
    tail: str = ""

    def content(self, image: Mapping[str, Any]) -> str | list[Mapping[str, Any]]:
        """As chat templates and OpenAI's API take it, with this part for the image."""
        if self.image is None:
            return self.text + self.tail
        if self.image_first:
            return [image, {"type": "text", "text": self.text}]
        before, after = ([{"type": "text", "text": text}] if text else [] for text in (self.text, self.tail))
        return [*before, image, *after]


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
    """How the model is asked. keep_images: how many of the last screenshots it is shown, None for all of them.

    windowed: each prompt is written anew as `history` has it, for models that were trained so; else a session goes on.
    """

    max_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    keep_images: int | None = 3
    windowed: bool = False
    use_grammar: bool = True
    record_tokens: bool = True
    template: Mapping[str, Any] = field(default_factory=dict)  # variables of the chat template
    # What is sent of a conversation where it is sent whole; by default all, with old screenshots gone.
    history: Callable[[Sequence[Message]], list[Message]] | None = None

    def sent_whole(self, messages: Sequence[Message]) -> list[Message]:
        return self.history(messages) if self.history is not None else trimmed(messages, self.keep_images)


class OfSchema(Generic[T]):
    """What is made of a schema, made once while the very same schema is given: formats ask under it at every step."""

    MOST = 256

    def __init__(self, make: Callable[[Mapping[str, Any]], T]) -> None:
        self._make = make
        self._made: dict[int, tuple[Mapping[str, Any], T]] = {}  # the schema too, so that its id stays its own

    def __call__(self, schema: Mapping[str, Any]) -> T:
        found = self._made.get(id(schema))
        if found is None:
            if len(self._made) >= self.MOST:
                self._made.clear()
            found = self._made[id(schema)] = schema, self._make(schema)
        return found[1]


class Chat(Protocol):
    """One conversation."""

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        """Add messages and hear the answer.

        It is a JSON text after the schema if there is one, or a text of the grammar in {"lark": …}.
        """
        ...

    async def close(self) -> None: ...


class ChatModel(Protocol):
    """Something that can hold many conversations at once."""

    @property
    def name(self) -> str: ...

    async def open(self) -> Chat: ...


@runtime_checkable
class SeededModel(Protocol):
    """A model whose answers can be drawn again: with one seed, the same to the same."""

    async def open_seeded(self, seed: int) -> Chat: ...


async def say_once(model: ChatModel, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
    """The answer in a conversation of its own."""
    chat = await model.open()
    try:
        return await chat.say(messages, schema)
    finally:
        await chat.close()


def numbered_screenshots(images: Sequence[bytes]) -> list[Message]:
    return [Message("user", f"Screenshot {number} of {len(images)}", png) for number, png in enumerate(images, 1)]


def turn_seed(seed: int, turn: int) -> int:
    """A draw depends on the seed and the place in an answer: the same seed would make all answers alike."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{turn}".encode()).digest()[:7], "big")


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As chat templates take them: an image is only a place."""
    return [{"role": message.role, "content": message.content({"type": "image"})} for message in messages]


def trimmed(messages: Sequence[Message], keep_images: int | None, omitted: str | None = None) -> list[Message]:
    """The conversation with a text in place of all but the last screenshots.

    omitted: that text, where each screenshot stood; empty, and a message that has nothing else is left out.
    """
    if keep_images is None:
        return list(messages)
    shown = [i for i, said in enumerate(messages) if said.image is not None]
    dropped = set(shown[: max(0, len(shown) - keep_images)])

    def without_image(said: Message) -> Message:
        if omitted is None:
            return Message(said.role, f"{said.text}\n(an older screenshot, no longer shown)".strip())
        return Message(said.role, said.text + omitted + said.tail)

    left = [without_image(said) if i in dropped else said for i, said in enumerate(messages)]
    return [said for i, said in enumerate(left) if i not in dropped or said.text]
