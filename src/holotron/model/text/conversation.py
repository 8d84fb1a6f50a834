"""From a conversation to what the decoder eats: token ids with room for every image, and the images' patches.

What people and tools write must not pass for markup, yet templates look into contents (`/no_think`, `</think>`,
strip), so contents cannot be swapped for place-holders while rendering. Instead only the text of special tokens in
them is guarded (`Tokenizer.protect`); everything else reaches the template, and the tokenizer, untouched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from holotron.model.config import ModelConfig
from holotron.model.errors import ModelError
from holotron.model.grids import image_tokens
from holotron.model.text.chat import GUARD, ChatTemplate, Message, Tokenizer
from holotron.model.tiling import ImageProcessor, ProcessedImage

# Markup that a model writes itself, and that is therefore markup in its answers.
ANSWER_MARKUP = ("<think>", "</think>", "<TOOLCALL>", "</TOOLCALL>", "<tool_call>", "</tool_call>")
IMAGE_TYPES = ("image", "image_url")

# Protected messages, and whether the next answer is opened, as text.
Renderer = Callable[[list[dict[str, Any]], bool], str]

# Stands for an answer while the text after it is looked for. No protected text has a guard before this character.
_PROBE = GUARD + "\ufdd2"


Size = tuple[int, int]


@dataclass(frozen=True)
class Written:
    """Token ids with room for every image, and where among them each image's own tokens begin."""

    token_ids: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Prompt:
    """Token ids, and the images whose features replace the image tokens, in order."""

    token_ids: tuple[int, ...]
    images: tuple[ProcessedImage, ...]


class PromptBuilder:
    """Writes conversations for one model."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, config: ModelConfig) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._name = config.name
        self._vision = config.vision
        if self._vision is not None:
            self._processor = ImageProcessor(self._vision)
            self._image_token = tokenizer.token_of(self._vision.image_token_id)
            if self._image_token not in tokenizer.markup:
                raise ModelError(
                    f"the image token {self._image_token!r} (id {self._vision.image_token_id}) is an ordinary word of "
                    "the tokenizer; it must be among the added tokens of tokenizer.json"
                )

    def build(
        self,
        messages: Sequence[Message],
        images: Sequence[Image.Image],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **template_kwargs: Any,
    ) -> Prompt:
        """The prompt for the next answer. There must be as many images as image parts in the messages."""
        sizes = [image.size for image in images]
        written = self.write(messages, sizes, tools, add_generation_prompt, **template_kwargs)
        return Prompt(written.token_ids, self._processed(images))

    def write(
        self,
        messages: Sequence[Message],
        sizes: Sequence[Size],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **template_kwargs: Any,
    ) -> Written:
        """`build` where only the sizes of the images are at hand: their pixels are somebody else's business."""
        render = self._renderer(tools, template_kwargs)
        text = render(self._protected(messages), add_generation_prompt)
        return self._widen(self._tokenizer.encode(text, allow_special=True), sizes)

    def build_suffix(
        self,
        messages: Sequence[Message],
        new_from: int,
        images: Sequence[Image.Image],
        tools: Sequence[Mapping[str, Any]] | None = None,
        exact: bool = True,
        **template_kwargs: Any,
    ) -> Prompt:
        """What a session that has taken in messages[:new_from] still lacks of the prompt for the next answer.

        See `write_suffix`; `images` are those of the new messages only.
        """
        sizes = [image.size for image in images]
        written = self.write_suffix(messages, new_from, sizes, tools, exact, **template_kwargs)
        return Prompt(written.token_ids, self._processed(images))

    def write_suffix(
        self,
        messages: Sequence[Message],
        new_from: int,
        sizes: Sequence[Size],
        tools: Sequence[Mapping[str, Any]] | None = None,
        exact: bool = True,
        ended_with: int | None = None,
        **template_kwargs: Any,
    ) -> Written:
        """What a session that has taken in messages[:new_from] still lacks of the prompt for the next answer.

        If the last of those is the assistant's, its content being the text as generated, the session is taken to end
        with the last token of that text: the suffix starts with whatever the template puts after an answer. If the
        session holds the token that ended the answer, too, `ended_with` is that token, and is not written twice.
        Otherwise the session is taken to end where `build(..., add_generation_prompt=False)` does. `sizes` are those
        of the new messages' images only.

        ModelError if the template does not write the earlier messages exactly as the session has seen them; then
        build the whole prompt anew. With exact=False an answer may be rewritten (many templates drop its reasoning),
        and the session keeps what it has seen.
        """
        if not 0 <= new_from <= len(messages):
            raise ModelError(f"new_from is {new_from}; there are {len(messages)} messages")
        render = self._renderer(tools, template_kwargs)
        protected = self._protected(messages)
        if new_from and protected[new_from - 1]["role"] == "assistant":
            rest = self._tokenizer.encode(_after_answer(render, protected, new_from - 1, exact), allow_special=True)
            return self._widen(rest[1:] if rest[:1] == [ended_with] else rest, sizes)
        whole = self._tokenizer.encode(render(protected, True), allow_special=True)
        seen: list[int] = []
        if new_from:
            seen = self._tokenizer.encode(render(protected[:new_from], False), allow_special=True)
        if whole[: len(seen)] != seen:
            raise ModelError(
                f"the chat template writes the first {new_from} messages differently once others follow; build the "
                "whole prompt anew"
            )
        return self._widen(whole[len(seen) :], sizes)

    def _renderer(self, tools: Sequence[Mapping[str, Any]] | None, template_kwargs: dict[str, Any]) -> Renderer:
        variables = self._protect(template_kwargs)
        if self._vision is not None:
            variables["image_token"] = self._image_token
        tools = self._protect(tools)
        return lambda messages, opened: self._template.render(messages, tools, opened, **variables)

    def _processed(self, images: Sequence[Image.Image]) -> tuple[ProcessedImage, ...]:
        return tuple(self._processor(image) for image in images) if images else ()

    def _widen(self, ids: list[int], sizes: Sequence[Size]) -> Written:
        """Each image token widened to the tokens of its image, between start and end."""
        if self._vision is None:
            if sizes:
                raise ModelError(f"{self._name} takes text only, but {len(sizes)} images were given")
            return Written(tuple(ids), ())
        vision = self._vision
        wanted = ids.count(vision.image_token_id)
        if wanted != len(sizes):
            raise ModelError(f"the prompt has places for {wanted} images, but {len(sizes)} were given")
        start = [] if vision.image_start_token_id is None else [vision.image_start_token_id]
        end = [] if vision.image_end_token_id is None else [vision.image_end_token_id]
        remaining = iter(sizes)
        widened: list[int] = []
        places: list[int] = []
        for id_ in ids:
            if id_ != vision.image_token_id:
                widened.append(id_)
                continue
            places.append(len(widened) + len(start))
            widened += [*start, *[id_] * image_tokens(*next(remaining), vision), *end]
        return Written(tuple(widened), tuple(places))

    # ---- keeping text text --------------------------------------------------------------------------------------

    def _protected(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        if not messages:
            raise ModelError("the conversation has no messages; at least one is needed")
        return [self._protected_message(message, index) for index, message in enumerate(messages)]

    def _protected_message(self, message: Message, index: int) -> dict[str, Any]:
        role = message.get("role")
        # Some templates make a special token out of the role, so it cannot be guarded and must be a plain word.
        if not isinstance(role, str) or not re.fullmatch("[A-Za-z_]+", role):
            raise ModelError(f"the role of message {index} is {role!r}; it must be a word such as 'user'")
        keep = ANSWER_MARKUP if role == "assistant" else ()
        protected: dict[str, Any] = {"role": role}
        for key, value in message.items():
            if key == "content":
                protected[key] = self._content(value, index, keep)
            elif key != "role":
                protected[key] = self._protect(value, keep if key == "reasoning_content" else ())
        return protected

    def _content(self, content: Any, index: int, keep: Sequence[str]) -> str | list[dict[str, Any]] | None:
        """Contents as templates know them: a text where there is nothing but text, else parts without their payload."""
        if content is None or isinstance(content, str):
            return None if content is None else self._tokenizer.protect(content, keep)
        if not isinstance(content, Sequence) or not all(isinstance(part, Mapping) for part in content):
            raise ModelError(f"the content of message {index} is neither a text nor a list of parts: {content!r:.100}")
        for part in content:
            kind = part.get("type")
            if kind not in IMAGE_TYPES and not (kind == "text" and isinstance(part.get("text"), str)):
                raise ModelError(
                    f"message {index} has a part of type {kind!r} that cannot be used; known are text, "
                    f"with its 'text', {' and '.join(IMAGE_TYPES)}"
                )
        if all(part["type"] == "text" for part in content):
            # Templates of text-only models skip lists without a word.
            return self._tokenizer.protect("".join(part["text"] for part in content), keep)
        if self._vision is None:
            raise ModelError(f"{self._name} takes text only, but message {index} has an image")
        return [
            {"type": "text", "text": self._tokenizer.protect(part["text"], keep)}
            if part["type"] == "text"
            else {"type": "image"}
            for part in content
        ]

    def _protect(self, value: Any, keep: Sequence[str] = ()) -> Any:
        """Every text in a JSON-like value protected, keys too."""
        if isinstance(value, str):
            return self._tokenizer.protect(value, keep)
        if isinstance(value, Mapping):
            return {self._protect(key): self._protect(item, keep) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [self._protect(item, keep) for item in value]
        return value


def _after_answer(render: Renderer, messages: list[dict[str, Any]], position: int, exact: bool) -> str:
    """What is written behind the answer at that position of a conversation that goes on."""
    answer = messages[position]
    probed = [*messages[:position], {"role": "assistant", "content": _PROBE}, *messages[position + 1 :]]
    _, found, rest = render(probed, True).partition(_PROBE)
    if not found:
        raise ModelError(f"the chat template leaves out the answer in message {position}; build the whole prompt anew")
    if exact:
        content = answer.get("content") or ""
        if not isinstance(content, str):
            raise ModelError(
                f"message {position} has images in it, which no model generated; build the whole prompt anew"
            )
        generated = render(messages[:position], True) + content
        whole = render(messages, True)
        # How the model spelled its tool calls is not kept in a message, so only what stands before them is compared.
        same = whole.startswith(generated) if answer.get("tool_calls") else whole == generated + rest
        if not same or not whole.endswith(rest):
            raise ModelError(
                f"the chat template does not write message {position} the way it was generated; build the whole "
                "prompt anew, or pass exact=False to go on from what the session has seen"
            )
    return rest
