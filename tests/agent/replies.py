"""A policy that says what it was told to say: for what the loop does with answers, whoever gives them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from holotron.agent.chat import Message, Reply


class SingleChat:
    """A model that is its one conversation, for all who open one; what it says is a subclass's."""

    async def open(self) -> Self:
        return self

    async def close(self) -> None: ...


class Recited(SingleChat):
    """Answers in order; the last one again and again. Keeps what it heard."""

    name = "recited"

    def __init__(self, *answers: str | dict[str, Any] | Callable[[Sequence[Message]], str]) -> None:
        self.answers = list(answers)
        self.heard: list[Message] = []
        self.schemas: list[Mapping[str, Any] | None] = []
        self.closed = 0

    async def say(self, new: Sequence[Message], schema: Mapping[str, Any] | None = None) -> Reply:
        self.heard += new
        self.schemas.append(schema)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        text = answer(new) if callable(answer) else answer if isinstance(answer, str) else json.dumps(answer)
        return Reply(text, token_ids=(1, 2, 3), logprobs=(-0.1, -0.2, -0.3), finish_reason="stop")

    async def close(self) -> None:
        self.closed += 1


def act(kind: str, note: str = "", thought: str = "", **fields: Any) -> dict[str, Any]:
    return {"note": note, "thought": thought, "action": {"action": kind, **fields}}
