"""The one writer of conversations: turns into token ids with room for every image, for serving and for training.

What people and tools write must not pass for markup, yet templates look into contents (`/no_think`, `</think>`,
strip), so contents cannot be swapped for place-holders while rendering. Instead only the text of special tokens in
them is guarded (`Tokenizer.protect`); everything else reaches the template, and the tokenizer, untouched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from holotron.model.config import ModelConfig
from holotron.model.errors import ModelError
from holotron.model.grids import image_tokens
from holotron.model.text.chat_template import ChatTemplate, TemplateMessage
from holotron.model.text.tokenizer import GUARD, Tokenizer

# Markup that a model writes itself, and that is therefore markup in its answers.
ANSWER_MARKUP = ("<think>", "</think>", "<TOOLCALL>", "</TOOLCALL>", "<tool_call>", "</tool_call>")
IMAGE_TYPES = ("image", "image_url")

# Stands for an answer while the text after it is looked for. No protected text has a guard before this character.
_PROBE = GUARD + "\ufdd2"


Size = tuple[int, int]
Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Written:
    """Token ids with room for every image, and where among them each image's own tokens begin."""

    token_ids: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class AnsweredTurn:
    """What is asked and what is to be answered: a text, or the very tokens that were generated."""

    messages: Sequence[TemplateMessage]
    sizes: Sequence[Size]
    answer: str | Sequence[int]
    learn: bool = True


@dataclass(frozen=True)
class WrittenExample(Written):
    """learn[i]: whether token i belongs to an answer that is to be learned."""

    learn: tuple[bool, ...]


class ConversationWriter:
    """Writes conversations for one model."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, config: ModelConfig) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.config = config
        self._vision = config.vision
        if self._vision is not None:
            self._image_token = tokenizer.token_of(self._vision.image_token_id)
            if self._image_token not in tokenizer.markup:
                raise ModelError(
                    f"the image token {self._image_token!r} (id {self._vision.image_token_id}) is an ordinary word of "
                    "the tokenizer; it must be among the added tokens of tokenizer.json"
                )

    def start(self) -> Conversation:
        """A conversation in which nothing was said yet."""
        return Conversation(self)

    def write(
        self,
        messages: Sequence[TemplateMessage],
        sizes: Sequence[Size],
        tools: Tools | None = None,
        add_generation_prompt: bool = True,
        **template_kwargs: Any,
    ) -> Written:
        """A whole conversation. There must be as many sizes as image parts in the messages."""
        text = self.render(self.protected(messages), tools, template_kwargs, add_generation_prompt)
        return self.encode(text, sizes)

    def write_example(self, turns: Iterable[AnsweredTurn], **template_kwargs: Any) -> WrittenExample:
        """A conversation to learn from: what a session would hold that was asked and had answered so."""
        conversation = self.start()
        ids: list[int] = []
        places: list[int] = []
        learn: list[bool] = []
        for turn in turns:
            written = conversation.append(turn.messages, turn.sizes, **template_kwargs)
            places += [len(ids) + place for place in written.places]
            text, answer, ended_with = self._answer(turn.answer)
            conversation.answered(text, ended_with)
            ids += [*written.token_ids, *answer]
            learn += [False] * len(written.token_ids) + [turn.learn] * len(answer)
        return WrittenExample(tuple(ids), tuple(places), tuple(learn))

    def _answer(self, answer: str | Sequence[int]) -> tuple[str, Sequence[int], int | None]:
        """Its text, its tokens and the token that ended it."""
        if isinstance(answer, str):
            end = self.end_token
            return answer, [*self.tokenizer.encode(answer), *([] if end is None else [end])], end
        ended = bool(answer) and answer[-1] in self.config.eos_token_ids
        return self.tokenizer.decode(answer), answer, answer[-1] if ended else None

    @cached_property
    def end_token(self) -> int | None:
        """What a model generates to end an answer: the token that the template writes there, if it is one of those."""
        question = {"role": "user", "content": "?"}
        text = self.render([question, {"role": "assistant", "content": _PROBE}, question], None, {})
        written = self.tokenizer.encode(text.partition(_PROBE)[2], allow_special=True)[:1]
        ends = self.config.eos_token_ids
        return next((id_ for id_ in (*written, *ends) if id_ in ends), None)

    # ---- what conversations are made of --------------------------------------------------------------------------

    def render(
        self,
        protected: Sequence[TemplateMessage],
        tools: Tools | None,
        template_kwargs: Mapping[str, Any],
        opened: bool = True,
    ) -> str:
        """Protected messages as text, with the next answer opened or not."""
        variables = self._protect(template_kwargs)
        if self._vision is not None:
            variables["image_token"] = self._image_token
        return self.template.render(protected, self._protect(tools), opened, **variables)

    def encode(self, text: str, sizes: Sequence[Size], without: int | None = None) -> Written:
        """Rendered text with each image token widened to the tokens of its image, between start and end.

        without: a token that is left out if the text begins with it.
        """
        ids = self.tokenizer.encode(text, allow_special=True)
        if ids[:1] == [without]:
            del ids[0]
        return self.widen(ids, sizes)

    def widen(self, ids: Sequence[int], sizes: Sequence[Size]) -> Written:
        """Token ids with each image token widened to the tokens of its image."""
        if self._vision is None:
            if sizes:
                raise ModelError(f"{self.config.name} takes text only, but {len(sizes)} images were given")
            return Written(tuple(ids), ())
        vision = self._vision
        wanted = ids.count(vision.image_token_id)
        if wanted != len(sizes):
            raise ModelError(f"the prompt has places for {wanted} images, but {len(sizes)} were given")
        remaining = iter(sizes)
        widened: list[int] = []
        places: list[int] = []
        for id_ in ids:
            if id_ != vision.image_token_id:
                widened.append(id_)
                continue
            image_ids, first = vision.image_ids(image_tokens(*next(remaining), vision))
            places.append(len(widened) + first)
            widened += image_ids
        return Written(tuple(widened), tuple(places))

    # ---- keeping text text --------------------------------------------------------------------------------------

    def protected(self, messages: Sequence[TemplateMessage], first: int = 0) -> list[dict[str, Any]]:
        """The messages with their texts guarded. first: the number that errors give to the first of them."""
        if not messages:
            raise ModelError("the conversation has no messages; at least one is needed")
        return [self._protected_message(message, index) for index, message in enumerate(messages, first)]

    def _protected_message(self, message: TemplateMessage, index: int) -> dict[str, Any]:
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
            return None if content is None else self.tokenizer.protect(content, keep)
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
            return self.tokenizer.protect("".join(part["text"] for part in content), keep)
        if self._vision is None:
            raise ModelError(f"{self.config.name} takes text only, but message {index} has an image")
        return [
            {"type": "text", "text": self.tokenizer.protect(part["text"], keep)}
            if part["type"] == "text"
            else {"type": "image"}
            for part in content
        ]

    def _protect(self, value: Any, keep: Sequence[str] = ()) -> Any:
        """Every text in a JSON-like value protected, keys too."""
        if isinstance(value, str):
            return self.tokenizer.protect(value, keep)
        if isinstance(value, Mapping):
            return {self._protect(key): self._protect(item, keep) for key, item in value.items()}
        if isinstance(value, Sequence):
            return [self._protect(item, keep) for item in value]
        return value


@dataclass(frozen=True)
class _Turn:
    """Where a turn began: how many messages there were, with its question too, and how the answer before it ended."""

    before: int
    asked: int
    ended_with: int | None


class Conversation:
    """What was said in one session, and how it goes on.

    The session keeps its answers as they were generated, however the template would write them now; many templates
    drop reasoning from earlier answers.
    """

    def __init__(self, writer: ConversationWriter) -> None:
        self._writer = writer
        self._messages: list[dict[str, Any]] = []
        self._turns: list[_Turn] = []
        self._tools: Tools | None = None
        self._ended_with: int | None = None  # the token that ended the last answer, if one did
        self._waits: _Turn | None = None  # whose question waits for its answer

    def append(
        self,
        messages: Sequence[TemplateMessage],
        sizes: Sequence[Size],
        tools: Tools | None = None,
        **template_kwargs: Any,
    ) -> Written:
        """What the session lacks of the prompt for the next answer, once these messages are in it.

        A question that waits for its answer, after `rollback`, is gone on from without messages. The tools of an
        earlier turn stay where none are given.
        """
        if self._waits or not messages:
            if messages or not self._waits:
                wanted = "no messages: its last question waits" if self._waits else "at least one message"
                raise ModelError(f"the session wants {wanted}")
            written = Written((), ())
            new: list[dict[str, Any]] = []
        else:
            new = self._writer.protected(messages, len(self._messages))
            written = self._write(new, sizes, tools or self._tools, template_kwargs)
        self._ask(new)
        self._tools = self._tools or tools
        return written

    def _ask(self, new: Sequence[dict[str, Any]]) -> None:
        before = len(self._messages)
        # A question that was kept is the turn's that answers it, as in the engine.
        turn = self._waits or _Turn(before, before + len(new), self._ended_with)
        self._turns.append(turn)
        self._messages += new
        self._waits = turn

    def answered(self, text: str, ended_with: int | None) -> None:
        """Take note of the answer, and of the token that ended it if the session holds one."""
        self._messages.append({"role": "assistant", "content": self._writer.tokenizer.protect(text, ANSWER_MARKUP)})
        self._ended_with = ended_with
        self._waits = None

    def asked(self) -> dict[str, Any]:
        """The last question as JSON, for `take_up`."""
        return {"messages": self._messages[self._turns[-1].before :], "tools": self._tools}

    def take_up(self, asked: Mapping[str, Any]) -> None:
        """Take note of a question that was asked before."""
        self._ask(asked["messages"])
        self._tools = asked["tools"]

    def rollback(self, turn: int, keep_prompt: bool) -> None:
        """Forget the turn of that number and all after it, as the engine does; with keep_prompt only its answer."""
        past = self._turns[turn]
        del self._messages[past.asked if keep_prompt else past.before :]
        del self._turns[turn % len(self._turns) :]
        self._waits = past if keep_prompt else None
        self._ended_with = past.ended_with

    def fork(self) -> Conversation:
        """One that goes on from here by itself."""
        twin = Conversation(self._writer)
        twin._messages, twin._turns = list(self._messages), list(self._turns)
        twin._tools, twin._ended_with, twin._waits = self._tools, self._ended_with, self._waits
        return twin

    def _write(
        self, new: list[dict[str, Any]], sizes: Sequence[Size], tools: Tools | None, template_kwargs: Mapping[str, Any]
    ) -> Written:
        writer, history = self._writer, self._messages
        if not history:
            return writer.encode(writer.render(new, tools, template_kwargs), sizes)
        last = len(history) - 1
        # Where the template allows it, a turn costs the same however long the conversation is.
        known = [history[0], history[last - 1]] if writer.template.is_local and last > 2 else history[:last]
        text = writer.render([*known, {"role": "assistant", "content": _PROBE}, *new], tools, template_kwargs)
        _, found, rest = text.partition(_PROBE)
        if not found:
            raise ModelError(f"the chat template leaves out the answer in message {last}; it cannot be gone on from")
        return writer.encode(rest, sizes, without=self._ended_with)
