"""Answers as blocks, as OpenAI's responses and Anthropic's messages tell them: thoughts, text, calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal
from uuid import uuid4

from holotron.engine.requests import Event, FinishEvent
from holotron.server.chat import AnswerPiece, ChatAnswer
from holotron.server.streaming import named_sse
from holotron.server.tool_markup import ToolCall
from holotron.server.turns import Choice

Kind = Literal["reasoning", "text", "call", "custom"]


@dataclass
class AnswerBlock:
    """A part of an answer. The text of a call is its arguments, that of a custom tool's call its input."""

    kind: Kind
    index: int
    name: str = ""  # of the tool
    text: str = ""
    id: str = field(default_factory=lambda: uuid4().hex[:24])

    @property
    def is_call(self) -> bool:
        return self.kind in ("call", "custom")


class BlockAnswer(ChatAnswer):
    """A chat's answer with one choice, in blocks. Every event of a stream is a JSON object with its `type`."""

    blocks: list[AnswerBlock]
    tells_silence: ClassVar[bool] = False  # whether an answer of nothing is a block without text

    @abstractmethod
    def began(self) -> Iterator[dict[str, Any]]:
        """The first events of a stream."""

    @abstractmethod
    def opened(self, block: AnswerBlock) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def grown(self, block: AnswerBlock, more: str) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def closed(self, block: AnswerBlock) -> Iterator[dict[str, Any]]: ...

    @abstractmethod
    def ended(self) -> Iterator[dict[str, Any]]:
        """The last events of a stream."""

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """The whole answer, once `blocks` has all of it."""

    @property
    def choice(self) -> Choice:
        return self.choices[0]

    def result(self) -> dict[str, Any]:
        self.blocks = []
        for _ in self._events(self.said(self.choice, self.choice.text, True), True):
            pass
        return self.told()

    def opening(self) -> Iterator[bytes]:
        self.blocks = []
        yield from map(named_sse, self.began())

    def chunks(self, choice: Choice, event: Event) -> Iterator[bytes]:
        finished = isinstance(event, FinishEvent)
        yield from map(named_sse, self._events(self.said(choice, event.text, finished), finished))

    def closing(self) -> Iterator[bytes]:
        yield from map(named_sse, self.ended())

    def _events(self, said: AnswerPiece, last: bool) -> Iterator[dict[str, Any]]:
        """What a piece of the answer adds to its blocks."""
        if said.reasoning:
            yield from self._write("reasoning", said.reasoning)
        if said.content:
            yield from self._write("text", said.content)
        for call in said.calls:
            yield from self._call(call)
        if last and not self.blocks and self.tells_silence:
            yield from self._begin(AnswerBlock("text", 0))
        if last and self.blocks and not self.blocks[-1].is_call:
            yield from self.closed(self.blocks[-1])

    def _write(self, kind: Kind, text: str) -> Iterator[dict[str, Any]]:
        if not self.blocks or self.blocks[-1].kind != kind:
            yield from self._begin(AnswerBlock(kind, len(self.blocks)))
        self.blocks[-1].text += text
        yield from self.grown(self.blocks[-1], text)

    def _call(self, call: ToolCall) -> Iterator[dict[str, Any]]:
        block = AnswerBlock("call" if call.input is None else "custom", len(self.blocks), call.name)
        yield from self._begin(block)
        block.text = call.arguments if call.input is None else call.input
        yield from self.grown(block, block.text)
        yield from self.closed(block)

    def _begin(self, block: AnswerBlock) -> Iterator[dict[str, Any]]:
        if self.blocks and not self.blocks[-1].is_call:  # a call is closed as soon as it is told
            yield from self.closed(self.blocks[-1])
        self.blocks.append(block)
        yield from self.opened(block)
