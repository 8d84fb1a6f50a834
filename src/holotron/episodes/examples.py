"""What a policy is taught with, in memory: conversations over screenshots.

Tar shards (`shards.py`) and views of episode stores (`views.py`) both give these. Imports without pydantic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holotron.agent.chat import Message


class ExampleError(ValueError):
    """Examples cannot be read or written."""


@dataclass(frozen=True)
class ExampleTurn:
    """A question and its answer. `learn` False: the answer is part of the history, not something to imitate.

    answer_ids: the very tokens of the answer, where a model wrote it and they were recorded. system: what a model is
    told before the question, where its format has that. sent: the messages themselves, where they are more than that.
    """

    said: str
    answer: str
    image: bytes | None = None
    learn: bool = True
    answer_ids: tuple[int, ...] | None = None
    system: str = ""
    sent: tuple[Message, ...] = ()

    @property
    def messages(self) -> list[Message]:
        """What was sent."""
        if self.sent:
            return list(self.sent)
        question = Message("user", self.said, self.image)
        return [Message("system", self.system), question] if self.system else [question]


@dataclass(frozen=True)
class Example:
    """A conversation. `kind` says what it teaches, such as "miniwob/click-button"; `about` where it is from.

    template: the variables of the chat template with which models of its format are asked.
    """

    kind: str
    turns: tuple[ExampleTurn, ...]
    about: Mapping[str, Any] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)
